"""Known refuses attributes that a class does not have, so that a misspelt one is no silence."""

import difflib

from ._library import refusal


class Known:
    """A base whose instances take only the attributes that `attribute_names` lists."""

    attribute_names = ()

    def __setattr__(self, name, value):
        if name not in self.attribute_names:
            raise refusal(self.why_unknown(name))
        super().__setattr__(name, value)

    def why_unknown(self, name):
        return f"{name}: {type(self).__name__} has no such attribute" + \
            nearest(name, self.attribute_names) + \
            f" The attributes are {', '.join(self.attribute_names)}"


def nearest(name, names):
    """"; did you mean ...?", or nothing if no name is near."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ";"


def known_dataclass(made):
    """A dataclass over Known: its attributes are its fields."""
    made.attribute_names = tuple(made.__dataclass_fields__)
    return made
