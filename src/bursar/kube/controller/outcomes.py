"""What a failed write means for whoever wanted it: try again, leave it, or stop being the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bursar.kube.client.errors import ApiError, Conflict, Fenced, Forbidden, Invalid, KubeError, NotFound
from bursar.kube.client.retries import LONGEST_WISH
from bursar.kube.controller.desk import Again

T = TypeVar("T")
STALE_TERM = "bursar.dev/term"  # stands in the message of the policy that refuses patches of a former leader
_UID = "metadata.uid"  # as the server names it when a patch is about another object of that name
_REFUSED_PAUSE = 5.0  # seconds before something that the server refused is sent once more

Refused = Callable[[str], None]


class Dethroned(Exception):  # noqa: N818 no error of ours: another replica leads now
    """Another process leads now; nothing that this one wants may be written."""


class Declined(Again):
    """The server refused the write itself: it was not carried out, and will hardly be."""


async def sent(write: Awaitable[T], *, refused: Refused) -> T | None:
    """The answer to a call; None when its object is gone. Raises ``Again`` (``Declined``) or ``Dethroned``.

    ``refused`` is told what the server said when it refused the write itself.
    """
    try:
        return await write
    except NotFound:
        return None
    except Fenced as fenced:
        raise Dethroned(str(fenced)) from None
    except Forbidden as error:
        if STALE_TERM in error.message:
            raise Dethroned(error.message) from None
        refused(error.message)
        raise Declined(error.message, _REFUSED_PAUSE) from None
    except Invalid as error:
        if any(cause.field == _UID for cause in error.causes):
            return None  # another object has the name now: the one that was meant is gone
        refused(error.message)
        raise Declined(error.message, _REFUSED_PAUSE) from None
    except Conflict as error:
        raise Again(error.message) from None
    except ApiError as error:
        pause = min(error.retry_after or 0.0, LONGEST_WISH)
        raise Again(str(error), pause or None) from None  # "at once" is no pause for us
    except KubeError as error:  # no answer, or none that makes sense
        raise Again(str(error)) from None
