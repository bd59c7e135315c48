"""A reference model of quota and allocator: plain loops and fractions over everything, nothing kept but the facts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

TOTALS = ("requests.tflops", "requests.vram", "limits.tflops", "limits.vram", "workers")
CODES = {
    "requests.tflops": "max.tflops.request",
    "requests.vram": "max.vram.request",
    "limits.tflops": "max.tflops.limit",
    "limits.vram": "max.vram.limit",
    "workers": "max.workers.limit",
}


@dataclass(frozen=True)
class Card:
    """A GPU; amounts in thousandths of a tflops and in bytes."""

    name: str
    node: str
    tflops: int
    vram: int
    model: str
    index: int


@dataclass(frozen=True)
class Ask:
    """What a worker wants of each of its GPUs; ``percent`` of the tflops, or all of it."""

    tflops: int = 0
    vram: int = 0
    percent: int | None = None
    whole: bool = False
    count: int = 1
    model: str = ""

    def knows(self, card: Card) -> bool:
        """Whether the card has some of each that is asked for."""
        compute = self.whole or self.percent is not None or self.tflops > 0
        enough = (card.tflops or not compute) and (card.vram or not (self.whole or self.vram))
        return bool(enough and (card.tflops or card.vram))

    def footprint(self, card: Card) -> tuple[int, int]:
        if self.whole:
            return card.tflops, card.vram
        tflops = self.tflops if self.percent is None else self.percent * card.tflops // 100
        return tflops, self.vram


@dataclass(frozen=True)
class Held:
    namespace: str
    ask: Ask
    place: str
    gpus: tuple[str, ...]


Quota = tuple[dict[str, int], dict[str, int]]


@dataclass
class ReferenceModel:
    cards: dict[str, Card] = field(default_factory=dict)
    quotas: dict[str, Quota] = field(default_factory=dict)  # by namespace/name
    held: dict[str, Held] = field(default_factory=dict)

    def copy(self) -> ReferenceModel:
        return replace(self, cards=dict(self.cards), quotas=dict(self.quotas), held=dict(self.held))

    # Sums

    def taken(self, name: str, but: str = "") -> tuple[int, int]:
        """What is used of a GPU, by everybody but one."""
        shares = [
            one.ask.footprint(self.cards[name])
            for uid, one in self.held.items()
            for gpu in one.gpus
            if gpu == name and uid != but
        ]
        return sum(t for t, _ in shares), sum(v for _, v in shares)

    def cost(self, ask: Ask, cards: list[Card]) -> dict[str, int]:
        shares = [ask.footprint(card) for card in cards]
        tflops, vram = sum(t for t, _ in shares), sum(v for _, v in shares)
        return dict(zip(TOTALS, (tflops, vram, tflops, vram, 1), strict=True))

    def used(self, namespace: str, but: str = "") -> dict[str, int]:
        found = dict.fromkeys(TOTALS, 0)
        for uid, one in self.held.items():
            if one.namespace == namespace and uid != but:
                for name, amount in self.cost(one.ask, [self.cards[gpu] for gpu in one.gpus]).items():
                    found[name] += amount
        return found

    # Decisions

    def suiting(self, ask: Ask) -> list[Card]:
        cards = [card for card in self.cards.values() if ask.model in {"", card.model} and ask.knows(card)]
        return sorted(cards, key=lambda card: (card.node, card.index, card.name))

    def fits(self, ask: Ask, card: Card) -> bool:
        used_tflops, used_vram = self.taken(card.name)
        if ask.whole:
            return (used_tflops, used_vram) == (0, 0)
        tflops, vram = ask.footprint(card)
        enough = tflops == 0 or used_tflops + tflops <= card.tflops
        return enough and (vram == 0 or used_vram + vram <= card.vram)

    def quota_reason(self, namespace: str, cost: dict[str, int], count: int, used: dict[str, int]) -> str:
        """``cost``: only what is to be checked."""
        quotas = [quota for key, quota in sorted(self.quotas.items()) if key.startswith(f"{namespace}/")]
        for name in TOTALS[:4]:
            for _, singles in quotas:
                if cost.get(name, 0) > singles.get(name, 10**30):
                    return f"single.{CODES[name]}"
        for _, singles in quotas:
            if count > singles.get("gpus", 10**9):
                return "single.max.gpuCount.limit"
        for name in TOTALS:
            for totals, _ in quotas:
                if cost.get(name, 0) > 0 and used[name] + cost[name] > totals.get(name, 10**30):
                    return f"total.{CODES[name]}"
        return ""

    def decide(self, namespace: str, ask: Ask) -> tuple[str, str, tuple[str, ...]]:
        """(reason, node, GPUs)."""
        cards = self.suiting(ask)
        varies = ask.whole or ask.percent is not None
        if varies and not cards:
            return "limits.capacity", "", ()
        shares = [ask.footprint(card) for card in (cards if varies else [])] or [(ask.tflops, ask.vram)]
        most = (max(t for t, _ in shares) * ask.count, max(v for _, v in shares) * ask.count)
        bound = dict(zip(TOTALS, (*most, *most, 1), strict=True))
        reason = self.quota_reason(namespace, bound, ask.count, self.used(namespace))
        if reason:
            return reason, "", ()
        return self._place(ask, cards)

    def _place(self, ask: Ask, cards: list[Card]) -> tuple[str, str, tuple[str, ...]]:
        nodes: dict[str, list[Card]] = {}
        for card in cards:
            nodes.setdefault(card.node, []).append(card)
        ranked: list[tuple[int, str]] = []
        possible = False
        for node, own in nodes.items():
            empty = [card for card in own if ask.whole or _within(ask.footprint(card), card)]
            possible = possible or len(empty) >= ask.count
            if sum(self.fits(ask, card) for card in own) >= ask.count:
                points = sum(self.points(card, free=False) for card in own)
                ranked.append((100_000_000 - points * 1_000_000 // len(own), node))
        if not ranked:
            unknown = any(ask.model in {"", c.model} and not ask.knows(c) for c in self.cards.values())
            return ("gpus.full" if possible else "gpus.capacity" if unknown else "gpus.none"), "", ()
        node = min(ranked)[1]
        order = sorted(nodes[node], key=lambda c: (not self.fits(ask, c), -self.points(c, free=True), c.index, c.name))
        chosen = sorted(order[: ask.count], key=lambda card: (card.index, card.name))
        return "", node, tuple(card.name for card in chosen)

    def points(self, card: Card, *, free: bool) -> int:
        """Of the default weights, 70 for vram and 30 for tflops, rounded half up."""
        tflops, vram = self.taken(card.name)
        if free:
            tflops, vram = max(card.tflops - tflops, 0), max(card.vram - vram, 0)
        share = 70 * Fraction(vram, card.vram) + 30 * Fraction(tflops, card.tflops)
        return min(int(share + Fraction(1, 2)), 100)

    def adjust(self, uid: str, ask: Ask) -> str:
        """The reason why a worker cannot become that; "" and it is that now."""
        one = self.held[uid]
        cards = [self.cards[gpu] for gpu in one.gpus]
        old, new = self.cost(one.ask, cards), self.cost(ask, cards)
        grown = {name: amount for name, amount in new.items() if amount > old[name]}
        reason = self.quota_reason(one.namespace, grown, 0, self.used(one.namespace, uid)) if grown else ""
        if reason:
            return reason
        for card in sorted(cards, key=lambda card: (card.index, card.name)):
            taken = self.taken(card.name, uid)
            for at, name in enumerate(("tflops", "vram")):
                before, after = one.ask.footprint(card)[at], ask.footprint(card)[at]
                if after > before and taken[at] + after > (card.tflops, card.vram)[at]:
                    return f"gpus.room.{name}"
        self.held[uid] = replace(one, ask=ask)
        return ""


def _within(share: tuple[int, int], card: Card) -> bool:
    return share[0] <= card.tflops and share[1] <= card.vram
