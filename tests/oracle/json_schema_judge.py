"""jsonschema's judgement of a text, with exact numbers and with formats asserted."""

import decimal
import json
import re

import jsonschema
import referencing.exceptions
from jsonschema import validators

_DRAFTS = {
    "draft2020-12": jsonschema.Draft202012Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft4": jsonschema.Draft4Validator,
}
UNJUDGED = object()  # Python cannot read a reference or a pattern of the schema

decimal.getcontext().prec = 5000
decimal.getcontext().Emax = decimal.MAX_EMAX
decimal.getcontext().Emin = decimal.MIN_EMIN

# RFC 3339 appendix A. jsonschema would need two further packages for it.
_DURATION_TIME = r"T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)"
_DURATION_DATE = rf"(\d+D|\d+M(\d+D)?|\d+Y(\d+M(\d+D)?)?)({_DURATION_TIME})?"
_DURATION = re.compile(rf"P({_DURATION_DATE}|{_DURATION_TIME}|\d+W)", re.ASCII)


def _exact(text):
    """A number that is not an int. Exponents past every bound in use are cut to 15 digits."""
    mantissa, _, exponent = text.lower().partition("e")
    sign = "-" if exponent.startswith("-") else ""
    digits = exponent.lstrip("+-").lstrip("0") or "0"
    if len(digits) > 15:
        digits = "9" * 15
    return decimal.Decimal(f"{mantissa}e{sign}{digits}")


def loads(text):
    return json.loads(text, parse_float=_exact, parse_int=decimal.Decimal)


def _is_number(_, value):
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def _is_integer(_, value):
    return _is_number(_, value) and value == decimal.Decimal(value).to_integral_value()


def _is_multiple(value, divisor):
    """Exact for any exponent: no power of ten is written out unless it is needed."""
    _, digits, exponent = value.as_tuple()
    _, divisor_digits, divisor_exponent = divisor.as_tuple()
    whole = int("".join(map(str, digits)))
    step = int("".join(map(str, divisor_digits)))
    shift = exponent - divisor_exponent
    if shift >= 0:
        return whole * pow(10, shift, step) % step == 0
    if -shift > len(digits):
        return whole == 0
    return whole % (step * 10**-shift) == 0


def _multiple_of(validator, divisor, value, _):
    if validator.is_type(value, "number") and not _is_multiple(value, divisor):
        yield jsonschema.ValidationError(f"{value} is not a multiple of {divisor}")


def _pattern(validator, pattern, value, _):
    # ECMA 262: \d and \w are those of ASCII.
    if validator.is_type(value, "string") and not re.search(pattern, value, re.ASCII):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _validator_class(draft):
    base = _DRAFTS[draft]
    checker = base.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
    return validators.extend(base, {"multipleOf": _multiple_of, "pattern": _pattern},
                             type_checker=checker)


_CLASSES = {draft: _validator_class(draft) for draft in _DRAFTS}


def _format_checker(draft):
    checker = jsonschema.FormatChecker(list(_DRAFTS[draft].FORMAT_CHECKER.checkers))
    checker.checkers = dict(_DRAFTS[draft].FORMAT_CHECKER.checkers)
    if "duration" not in checker.checkers:
        checker.checks("duration")(lambda value: not isinstance(value, str) or
                                   _DURATION.fullmatch(value) is not None)
    return checker


_CHECKERS = {draft: _format_checker(draft) for draft in _DRAFTS}
# Without its package jsonschema passes a format in silence.
ASSERTED = {"date-time", "date", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "duration"}
assert ASSERTED <= set(_CHECKERS["draft2020-12"].checkers), ASSERTED


class Judge:
    def __init__(self, schema, draft="draft2020-12"):
        self._validator = _CLASSES[draft](loads(schema), format_checker=_CHECKERS[draft])

    def complaint(self, text):
        """None if the text is a valid instance, UNJUDGED, or what is wrong with it."""
        try:
            value = loads(text.decode())
        except ValueError as error:
            return f"not JSON: {error}"
        try:
            error = next(self._validator.iter_errors(value), None)
        except (referencing.exceptions.Unresolvable, re.error):
            return UNJUDGED
        return None if error is None else error.message[:500]
