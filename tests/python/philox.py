"""The coins of CONTRACT §4: Philox4x32-10 (Salmon et al. 2011), keyed and never drawn in order."""

SAMPLE, DRAFT, ACCEPT, RESIDUAL, TREE, LIBRARY = 1, 2, 3, 4, 5, 6

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox4x32(counter, key, num_rounds=10):
    """Four random words for a counter of four words and a key of two."""
    c, k = tuple(counter), tuple(key)
    for _ in range(num_rounds):
        product0, product1 = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = ((product1 >> 32) ^ c[1] ^ k[0], product1 & _WORD,
             (product0 >> 32) ^ c[3] ^ k[1], product0 & _WORD)
        k = ((k[0] + _KEY_STEPS[0]) & _WORD, (k[1] + _KEY_STEPS[1]) & _WORD)
    return c


def coin53(seed, position, round_base, node, purpose):
    """The coin as an integer below 2^53."""
    key = (seed & _WORD, seed >> 32)
    words = philox4x32((position, round_base, node, purpose), key)
    return ((words[0] << 32) | words[1]) >> 11


class Coins:
    """The coins of one round of one sequence. `position` is that of the first token it confirms."""

    def __init__(self, seed, position, round_base):
        self.seed, self.position, self.round_base = seed, position, round_base

    def sample(self, index):
        """Of the token at the round's place `index`; it belongs to the position alone."""
        return coin53(self.seed, self.position + index, 0, 0, SAMPLE) * 2.0**-53

    def draft(self, depth, node):
        return self.at(depth, node, DRAFT)

    def accept(self, index):
        """Of draft token `index`, the node index + 1 of the chain."""
        return self.at(index, index + 1, ACCEPT)

    def residual(self, num_accepted):
        """Of the token drawn where the walk stopped."""
        return self.at(num_accepted, num_accepted, RESIDUAL)

    def at(self, depth, node, purpose):
        """Of a node of the round's draft, at a place of this depth."""
        coin = coin53(self.seed, self.position + depth, self.round_base, node, purpose)
        return coin * 2.0**-53
