"""Data for the report page (tools/replay/report/DATA.md): rounds of imaginary sequences.

The seed determines everything. Sequences verify with `token`: the coins, p and q of a place decide
it as docs/CONTRACT.md says, so that the page's numbers can be compared with each other.
"""

import json
import random
import re

ACCEPTED, REPLACEMENT, BONUS, PLAIN, FORCED = range(5)
REJECTED, NOT_JUDGED, CUT, BAD_ROW, WITH_BLOCK = range(5)
TAKEN, REFUSED, ENDS, BAD_TARGET, BAD_DRAFT = range(5)
VOCAB_SIZE = 32000
_COINS = 2.0**-53

CAUSES = ["the coin", "p is 0: top_k"]
COIN_CAUSE, FILTER_CAUSE = 0, 3  # of cause_kind
_WHY = {
    TAKEN: "The coin is below the ratio, so the draft token is accepted.",
    REFUSED: "The coin is not below the ratio; the residual gives another token.",
}


class ReportData:
    """The tables, filled row by row."""

    def __init__(self, level="rows"):
        self.strings = {}
        self.tables = {name: {} for name in ("sequences", "steps", "tokens", "rejected",
                                             "decisions", "candidates", "grammar", "nodes")}
        self.sizes = dict.fromkeys(self.tables, 0)
        self.level = level
        self.warnings = []
        self.said = None  # in place of what the doctor says

    def text(self, string):
        return None if string is None else self.strings.setdefault(string, len(self.strings))

    def add(self, table, **row):
        """Adds a row; a column that begins late is null before. Returns its index."""
        index = self.sizes[table]
        columns = self.tables[table]
        for name, value in row.items():
            if name not in columns:
                columns[name] = [None] * index
            columns[name].append(value)
        self.sizes[table] += 1
        for column in columns.values():
            if len(column) < index + 1:
                column.append(None)
        return index

    def as_object(self):
        steps, sequences = self.tables["steps"], self.tables["sequences"]
        trace = {
            "file": "demo-2025-01-01.mcap", "specd": "0.4.0", "backend": "cpu",
            "device": "x86-64-v3, 2 cores", "vocab_size": VOCAB_SIZE, "level": self.level,
            "started": "2025-01-01T12:00:00Z", "rounds": len(set(steps.get("round", []))),
            "sequences": self.sizes["sequences"], "tokens": self.sizes["tokens"],
            "drafted": sum(sequences.get("drafted", [])),
            "accepted": sum(sequences.get("accepted", [])), "dropped": 0,
            "warnings": self.warnings, **(self.doctor() if self.said is None else self.said),
        }
        return {"version": 1, "trace": trace, "strings": list(self.strings), **self.tables}

    def doctor(self):
        """What `specd-replay doctor` would say of the decisions: reached, accepted, and expected."""
        decisions = self.tables["decisions"]
        chances = {}
        for place, p, q, verdict in zip(*(decisions.get(name, []) for name in
                                          ("place", "p", "q", "verdict"))):
            if p is not None and q:
                chances.setdefault(place, []).append((verdict == TAKEN, min(1, p / q)))

        def members(judged):
            chance = [c for _, c in judged]
            accepted = sum(t for t, _ in judged)
            return {"reached": len(judged), "accepted": accepted, "known": len(judged),
                    "accepted_of_known": accepted,
                    "expected": sum(chance) / len(chance),
                    "error": sum(c * (1 - c) for c in chance)**0.5 / len(chance)}

        if not chances:
            return {}
        return {"acceptance": members(sum(chances.values(), [])),
                "places": [{"place": place, **members(chances[place])} for place in sorted(chances)]}

    def as_json(self):
        text = json.dumps(self.as_object(), separators=(",", ":"))  # escapes all but ASCII
        return text.replace("<", "\\u003c")


def pieces_of(text):
    """Cuts a text into pieces as a tokenizer does."""
    return re.findall(r" ?[A-Za-z]{1,7}|\n|[0-9]{1,3}| ?[^A-Za-z0-9\n]", text)


class Generator:
    """Makes sequences from a list of pieces; the id of a piece is its index among the distinct."""

    def __init__(self, seed, pieces, candidates=True, max_draft=6):
        self.random = random.Random(seed)
        self.pieces = pieces
        self.ids = {piece: i + 3 for i, piece in enumerate(dict.fromkeys(pieces))}
        self.words = list(self.ids)
        self.candidates = candidates
        self.max_draft = max_draft
        self.data = ReportData("rows" if candidates else "rounds")
        self.round = 0
        self.time_ms = 0.0
        self.open = []

    def coin(self):
        return self.random.getrandbits(53) * _COINS

    def add_sequence(self, name, num_tokens, method="token", grammar=None, **params):
        text = self.data.text
        index = self.data.add(
            "sequences", request_id=text(name),
            handle=text(f"0x1{self.data.sizes['sequences']:08x}"), method=text(method),
            seed=str(self.random.getrandbits(64)), params=params,
            finish=text("length"), grammar=text(grammar), rounds=0, tokens=0, drafted=0, accepted=0)
        self.open.append({"index": index, "left": num_tokens, "kept": 0, "grammar": grammar,
                          "at": self.random.randrange(len(self.pieces))})
        return index

    def run(self, batch=32):
        """Rounds until every sequence has its tokens; at most `batch` sequences in a round."""
        while self.open:
            verify_us = 14 + 2.5 * min(batch, len(self.open)) + self.random.expovariate(0.4)
            for sequence in self.open[:batch]:
                self.step(sequence, verify_us)
            self.open = [sequence for sequence in self.open if sequence["left"] > 0]
            self.round += 1
            self.time_ms += self.random.uniform(8, 14)

    def step(self, sequence, verify_us):
        """One sequence's part of a round."""
        rng = self.random
        num_drafted = 0 if rng.random() < 0.04 else rng.randint(2, self.max_draft)
        hard = 0.12 if 30 < self.round % 160 < 60 else 0.0  # a stretch that the drafter knows badly
        judged = []
        for place in range(num_drafted):
            chance = max(0.05, 0.9 - hard * 3 - 0.04 * place)
            p, q = rng.uniform(0.2, 0.95), rng.uniform(0.05, 0.9)
            if rng.random() > chance:
                p *= 0.08
            coin = self.coin()
            judged.append((p, q, coin))
            if not coin * q < p:
                break
        taken = [coin * q < p for p, q, coin in judged]
        confirmed = sum(taken) + 1
        kept = min(confirmed, sequence["left"])
        accepted = min(sum(taken), kept)
        finish = self.data.text("length") if kept == sequence["left"] else None
        step = self.data.add(
            "steps", sequence=sequence["index"], round=self.round, time_ms=round(self.time_ms, 3),
            verify_us=round(verify_us, 2), base=sequence["kept"], method=self.data.text("token"),
            drafted=num_drafted, accepted=accepted, judged_accepted=sum(taken), kept=kept, status=self.data.text("ok"),
            finish=finish)
        self.places(sequence, step, num_drafted, judged, taken, kept)
        sequence["kept"] += kept
        sequence["left"] -= kept
        for name, amount in (("rounds", 1), ("tokens", kept), ("drafted", num_drafted),
                             ("accepted", accepted)):
            self.data.tables["sequences"][name][sequence["index"]] += amount

    def next_piece(self, sequence):
        sequence["at"] = (sequence["at"] + 1) % len(self.pieces)
        return self.pieces[sequence["at"]]

    def places(self, sequence, step, num_drafted, judged, taken, kept):
        """The tokens, rejected drafts and decisions of a step."""
        text = self.data.text
        final = sum(taken)
        for place, (p, q, coin) in enumerate(judged):
            piece = self.next_piece(sequence)
            draft = piece if taken[place] else self.random.choice(self.words)
            decision = self.data.add(
                "decisions", step=step, place=place, draft_id=self.ids[draft],
                draft_text=text(draft), draft_kind=2, p=p, q=q, accept_coin=coin,
                verdict=TAKEN if taken[place] else REFUSED, token=self.ids[piece],
                token_text=text(piece), why=text(_WHY[TAKEN if taken[place] else REFUSED]))
            self.add_details(sequence, decision, p, q, draft, piece)
            if taken[place]:
                if place < kept:
                    self.token(step, piece, ACCEPTED, decision)
                else:
                    self.reject(step, place, draft, CUT, decision)
                continue
            self.draw(decision, 1, residual_mass=self.random.uniform(0.2, 0.9))
            if place < kept:
                self.token(step, piece, REPLACEMENT, decision)
            self.reject(step, place, draft, REJECTED, decision)
        if final == num_drafted:
            self.last_place(sequence, step, num_drafted, kept)
        for place in range(len(judged), num_drafted):
            self.reject(step, place, self.random.choice(self.words), NOT_JUDGED, None)

    def last_place(self, sequence, step, num_drafted, kept):
        piece = self.next_piece(sequence)
        text = self.data.text
        why = "All draft tokens are accepted; the bonus is drawn from the last row." if num_drafted else \
            "There was no draft; the token is drawn from the row."
        decision = self.data.add(
            "decisions", step=step, place=num_drafted, draft_kind=0, verdict=ENDS,
            token=self.ids[piece], token_text=text(piece), why=text(why))
        self.add_details(sequence, decision, self.random.uniform(0.2, 0.9), None, None, piece)
        self.draw(decision, 0)
        if num_drafted < kept:
            self.token(step, piece, BONUS if num_drafted else PLAIN, decision)

    def draw(self, decision, purpose, residual_mass=None):
        coin = self.coin()
        columns = self.data.tables["decisions"]
        low = coin * self.random.random()
        facts = {"draw_coin": coin, "draw_purpose": purpose, "draw_low": low,
                 "draw_high": coin + (1 - coin) * self.random.random() + _COINS,
                 "residual_mass": residual_mass, "token_p": self.random.uniform(0.05, 0.6)}
        for name, value in facts.items():
            column = columns.setdefault(name, [])
            column.extend([None] * (decision + 1 - len(column)))
            column[decision] = value

    def add_details(self, sequence, decision, p, q, draft, piece):
        if sequence["grammar"]:
            self.data.add("grammar", decision=decision, state=f"{self.random.getrandbits(20):05x}",
                          mask=f"{self.random.getrandbits(64):016x}",
                          allowed=self.random.randrange(3, 900))
        if not self.candidates:
            return
        rows, left = [], 1.0
        for word in dict.fromkeys([draft, piece] + self.random.sample(self.words, 8)):
            if word is None:
                continue
            mass = p if word == (draft or piece) else left * self.random.uniform(0.05, 0.5)
            left = max(0.0, left - mass)
            forbidden = bool(sequence["grammar"]) and word not in (draft, piece) and \
                self.random.random() < 0.3
            share = None if q is None else q if word == draft else \
                self.random.random() * (1 - q) / 4
            rows.append((0.0 if forbidden else mass, share, word, forbidden))
        for mass, share, word, forbidden in sorted(rows, key=lambda row: -row[0]):
            self.data.add("candidates", decision=decision, id=self.ids[word],
                          text=self.data.text(word), p=mass, q=share, forbidden=int(forbidden))

    def token(self, step, piece, kind, decision):
        self.data.add("tokens", step=step, id=self.ids[piece], text=self.data.text(piece),
                      kind=kind, decision=decision)

    def reject(self, step, place, piece, fate, decision):
        which = self.random.choice((0, 0, 1)) if fate == REJECTED else None
        self.data.add("rejected", step=step, place=place, id=self.ids[piece],
                      text=self.data.text(piece), fate=fate, decision=decision,
                      cause=None if which is None else self.data.text(CAUSES[which]),
                      cause_kind=None if which is None else (COIN_CAUSE, FILTER_CAUSE)[which])
