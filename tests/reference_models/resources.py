"""The reference model of bursar.resources: dictionaries of Python integers, dimension by dimension."""

LARGEST = 2**62 - 1
Amounts = dict[str, int]


def clean(amounts: Amounts) -> Amounts | None:
    """Without zeros; None where an amount leaves the range."""
    if any(abs(amount) > LARGEST for amount in amounts.values()):
        return None
    return {name: amount for name, amount in amounts.items() if amount}


def plus(left: Amounts, right: Amounts, sign: int = 1) -> Amounts | None:
    return clean({name: left.get(name, 0) + sign * right.get(name, 0) for name in left | right})


def peak(left: Amounts, right: Amounts) -> Amounts | None:
    return clean({name: max(left.get(name, 0), right.get(name, 0)) for name in left | right})


def short(used: Amounts, cost: Amounts, caps: Amounts, stock: bool) -> Amounts:
    """What is missing of each requested dimension; not more than can be said."""
    missing = {}
    for name, wanted in cost.items():
        cap = caps.get(name, 0 if stock else None)
        over = 0 if cap is None else used.get(name, 0) + wanted - cap
        if wanted > 0 and over > 0:
            missing[name] = min(over, LARGEST)
    return missing
