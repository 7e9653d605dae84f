"""jsonschema's judgement of a text, with exact numbers and with formats asserted."""

import decimal
import functools
import json
import re
import string
import urllib.parse

import fqdn
import jsonschema
import referencing.exceptions
from jsonschema import validators
from rfc3986_validator import validate_rfc3986

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

_SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


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


@functools.cache
def _compile(pattern):
    """The pattern as ECMA 262 reads it: $ is the very end, \\d and \\w are ASCII, \\s is more."""
    parts = []
    in_class = False
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        if part == "\\s":
            part = _SPACES if in_class else f"[{_SPACES}]"
        elif part == "\\S" and not in_class:
            part = f"[^{_SPACES}]"
        elif part == "\\S":
            raise re.error("\\S in a class has no twin in Python")
        elif part == "$" and not in_class:
            part = r"\Z"
        elif part in "[]":
            in_class = part == "["
        parts.append(part)
    return re.compile("".join(parts), re.ASCII)


def _pattern(validator, pattern, value, _):
    if validator.is_type(value, "string") and not _compile(pattern).search(value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _matching(patterns, names):
    return [(pattern, name) for pattern in patterns for name in names
            if _compile(pattern).search(name)]


def _pattern_properties(validator, patterns, value, _):
    if validator.is_type(value, "object"):
        for pattern, name in _matching(patterns, value):
            yield from validator.descend(value[name], patterns[pattern], path=name,
                                         schema_path=pattern)


def _additional_properties(validator, additional, value, schema):
    if not validator.is_type(value, "object"):
        return
    known = set(schema.get("properties", ()))
    known |= {name for _, name in _matching(schema.get("patternProperties", ()), value)}
    for name in value:
        if name in known:
            continue
        if additional is False:
            yield jsonschema.ValidationError(f"additional property {name!r}")
        else:
            yield from validator.descend(value[name], additional, path=name)


def _validator_class(draft):
    base = _DRAFTS[draft]
    checker = base.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
    return validators.extend(base, {
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }, type_checker=checker)


_CLASSES = {draft: _validator_class(draft) for draft in _DRAFTS}


# RFC 6901 section 3, draft-handrews-relative-json-pointer-01 section 3 and RFC 6570 section 2.
_POINTER = re.compile(r"(/([^/~]|~0|~1)*)*", re.DOTALL)
_RELATIVE_POINTER = re.compile(rf"(0|[1-9][0-9]*)(#|{_POINTER.pattern})", re.DOTALL)
_VARIABLE = r"(\w|%[0-9A-Fa-f]{2})(\.?(\w|%[0-9A-Fa-f]{2}))*(:[1-9][0-9]{0,3}|\*)?"
_TEMPLATE = re.compile(rf"""([^\x00- "'%<>\\^`{{|}}\x7f-\x9f]|%[0-9A-Fa-f]{{2}}|"""
                       rf"\{{[+#./;?&=,!@|]?{_VARIABLE}(,{_VARIABLE})*\}})*", re.ASCII)


def _is_iri(rule):
    """RFC 3987 section 3.1 makes an IRI a URI, by the escapes of the bytes of its characters."""
    def check(value):
        in_query = value.partition("#")[0].partition("?")[2]
        for c in set(value):
            is_private = "\ue000" <= c <= "\uf8ff"
            if is_private and value.count(c) != in_query.count(c):
                return False
            if "\x80" <= c < "\xa0" or "\ufdd0" <= c <= "\ufdef" or c >= "\ufff0" and c <= "\uffff":
                return False
        return validate_rfc3986(urllib.parse.quote(value, safe=string.printable), rule=rule)
    return check


def _is_idn_hostname(value):
    if value.isascii():
        return fqdn.FQDN(value, min_labels=1).is_valid and not value.endswith(".")
    return len(value.encode("idna")) <= 253 and value == value.lower()


def _format_checker(draft):
    """The formats that specd enforces, as far as jsonschema and the draft have them."""
    checker = jsonschema.FormatChecker([])
    known = dict(_DRAFTS[draft].FORMAT_CHECKER.checkers)
    own = {
        "duration": _DURATION.fullmatch,
        "json-pointer": _POINTER.fullmatch,
        "relative-json-pointer": _RELATIVE_POINTER.fullmatch,
        "uri-template": _TEMPLATE.fullmatch,
        "iri": _is_iri("URI"),
        "iri-reference": _is_iri("URI_reference"),
        "idn-hostname": _is_idn_hostname,
    }
    for name, check in own.items():
        known[name] = (lambda value, check=check: not isinstance(value, str) or bool(check(value)),
                       (ValueError,))
    checker.checkers = {name: known[name] for name in ENFORCED if name in known}
    return checker


ENFORCED = ("date-time", "date", "time", "email", "idn-email", "hostname", "idn-hostname", "ipv4",
            "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "duration",
            "uri-template", "json-pointer", "relative-json-pointer", "regex")
_CHECKERS = {draft: _format_checker(draft) for draft in _DRAFTS}
# Without its package jsonschema passes a format in silence.
assert set(ENFORCED) == set(_CHECKERS["draft2020-12"].checkers)


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
