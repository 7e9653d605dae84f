// Model reads the data of the page (DATA.md) and joins its tables.

const kKinds = ['accepted', 'replacement', 'bonus', 'plain', 'forced'];
const kKindMeanings = [
  'a draft token that was accepted',
  'drawn where a draft token was rejected',
  'drawn after all draft tokens were accepted',
  'drawn where there was no draft token',
  'its place was forced; the row was not read',
];
const kFates = ['rejected', 'not judged', 'accepted, then dropped by the finish rules',
                'its row was bad', 'rejected with its block'];
const kNodeFates = ['accepted', 'rejected', 'not judged', 'outside the vocabulary'];
const kNodeKinds = ['one_hot', 'sampled', 'sampled_rest'];
const kCauseKinds = 5;  // DATA.md, rejected
const kVerdicts = ['accepted', 'rejected', 'end of the draft', 'bad target row', 'bad draft row'];
const kDraftKinds = ['none', 'one_hot', 'sampled'];
const kPurposes = ['SAMPLE', 'RESIDUAL'];

class Model {
  constructor(data) {
    if (data.version !== 1) {
      throw new Error(`the data has version ${data.version}; this page reads version 1`);
    }
    this.data = data;
    this.trace = data.trace;
    this.strings = data.strings ?? [];
    const size = (table, column) => data[table]?.[column]?.length ?? 0;
    this.numSequences = size('sequences', 'request_id');
    this.numSteps = size('steps', 'sequence');
    this.numTokens = size('tokens', 'step');
    this.numRejected = size('rejected', 'step');
    this.numDecisions = size('decisions', 'step');
    this.tokenStart = startsOf(data.tokens?.step, this.numSteps);
    this.rejectedStart = startsOf(data.rejected?.step, this.numSteps);
    this.decisionStart = startsOf(data.decisions?.step, this.numSteps);
    this.nodeStart = startsOf(data.nodes?.step, this.numSteps);
    this.candidateStart = startsOf(data.candidates?.decision, this.numDecisions);
    this.grammarStart = startsOf(data.grammar?.decision, this.numDecisions);
    this.groupSteps();
    this.numberRounds();
    this.measurePlaces();
    this.texts = new Map();
  }

  // A value of a table; null where it is absent.
  get(table, column, row) {
    return this.data[table]?.[column]?.[row] ?? null;
  }

  // The string that a column of kind *text* points to.
  text(table, column, row) {
    const index = this.get(table, column, row);
    return index === null ? null : this.strings[index] ?? null;
  }

  // stepsOf(s) are the steps of sequence s, in order.
  groupSteps() {
    const sequence = this.data.steps?.sequence ?? [];
    this.stepsStart = new Int32Array(this.numSequences + 1);
    for (const s of sequence) ++this.stepsStart[s + 1];
    for (let s = 0; s < this.numSequences; ++s) this.stepsStart[s + 1] += this.stepsStart[s];
    const next = this.stepsStart.slice();
    this.stepsBySequence = new Int32Array(this.numSteps);
    sequence.forEach((s, step) => this.stepsBySequence[next[s]++] = step);
  }

  stepsOf(s) {
    return this.stepsBySequence.subarray(this.stepsStart[s], this.stepsStart[s + 1]);
  }

  // The ordinal of each step's round among the rounds of the data.
  numberRounds() {
    const round = this.data.steps?.round ?? [];
    this.ordinal = new Int32Array(this.numSteps);
    this.rounds = [];
    for (let step = 0; step < this.numSteps; ++step) {
      if (step === 0 || round[step] !== round[step - 1]) this.rounds.push(step);
      this.ordinal[step] = this.rounds.length - 1;
    }
  }

  // The draft tokens that the method accepted. The finish rules may have dropped some of them.
  accepted(step) {
    return this.get('steps', 'judged_accepted', step) ?? this.get('steps', 'accepted', step) ?? 0;
  }

  // The places of a step are the rows placeStart[step] .. placeStart[step + 1] of the three arrays
  // of `places`: drafted, reached, accepted.
  measurePlaces() {
    const places = [[], [], []];
    this.placeStart = new Int32Array(this.numSteps + 1);
    for (let step = 0; step < this.numSteps; ++step) {
      for (const counts of this.placesOf(step)) {
        counts.forEach((value, which) => places[which].push(value));
      }
      this.placeStart[step + 1] = places[0].length;
    }
    this.places = places.map((values) => Int32Array.from(values));
  }

  // The draft tokens of a step at each place: [drafted, reached, accepted]. A node of a tree counts
  // at its depth.
  placesOf(step) {
    const [first, end] = [this.nodeStart[step], this.nodeStart[step + 1]];
    const accepted = this.accepted(step);
    if (first === end) {
      const reached = this.get('steps', 'reached', step) ?? accepted + 1;
      return Array.from({length: this.get('steps', 'drafted', step) ?? 0},
                        (_, place) => [1, place < reached ? 1 : 0, place < accepted ? 1 : 0]);
    }
    const places = [];
    const depthOf = new Map([[null, 0]]);
    for (let row = first; row < end; ++row) {
      const depth = depthOf.get(this.get('nodes', 'parent', row)) ?? 0;
      depthOf.set(this.get('nodes', 'node', row), depth + 1);
      const fate = this.get('nodes', 'fate', row) ?? 2;
      if (fate === 3) continue;
      while (places.length <= depth) places.push([0, 0, 0]);
      ++places[depth][0];
      if (fate !== 2) ++places[depth][1];
      if (fate === 0) ++places[depth][2];
    }
    return places;
  }

  // Why a row of `rejected` was not kept: a key that equal causes share, words, and a class.
  causeOf(row) {
    const fate = this.get('rejected', 'fate', row) ?? 0;
    if (fate !== 0) return {key: `fate${fate}`, words: kFates[fate], look: `fate${fate}`};
    const cause = this.get('rejected', 'cause', row);
    const kind = Math.min(this.get('rejected', 'cause_kind', row) ?? 0, kCauseKinds - 1);
    return {key: `cause${cause ?? ''}`, look: `fate0 cause${kind}`,
            words: cause === null ? kFates[0] : `rejected: ${this.strings[cause]}`};
  }

  // The causes of the rows [first, end) of `rejected` with their counts, the most frequent first.
  causesIn(ranges) {
    const causes = new Map();
    for (const [first, end] of ranges) {
      for (let row = first; row < end; ++row) {
        const cause = this.causeOf(row);
        if (!causes.has(cause.key)) causes.set(cause.key, {...cause, count: 0});
        ++causes.get(cause.key).count;
      }
    }
    return [...causes.values()].sort((a, b) => b.count - a.count);
  }

  // The tokens of a sequence with the pieces that are shown and searched.
  textOf(s) {
    if (!this.texts.has(s)) this.texts.set(s, new SequenceText(this, s));
    return this.texts.get(s);
  }
}

// starts[i] .. starts[i + 1] are the rows whose value in the ascending column `owners` is i.
function startsOf(owners, numOwners) {
  const starts = new Int32Array(numOwners + 1);
  for (const owner of owners ?? []) ++starts[owner + 1];
  for (let i = 0; i < numOwners; ++i) starts[i + 1] += starts[i];
  return starts;
}

class SequenceText {
  constructor(model, s) {
    this.sequence = s;
    this.tokens = [];     // rows of `tokens`
    this.positions = [];  // of each token in the whole output
    this.gaps = new Map();  // token -> kept tokens before it that are not in the data
    let expected = 0;
    for (const step of model.stepsOf(s)) {
      const base = model.get('steps', 'base', step) ?? expected;
      const first = model.tokenStart[step];
      const kept = model.tokenStart[step + 1] - first;
      if (base > expected && kept > 0) this.gaps.set(this.tokens.length, base - expected);
      for (let j = 0; j < kept; ++j) {
        this.tokens.push(first + j);
        this.positions.push(base + j);
      }
      expected = base + (model.get('steps', 'kept', step) ?? kept);
    }
    const pieces = this.tokens.map((token) => model.text('tokens', 'text', token) ??
        `[${model.get('tokens', 'id', token) ?? '?'}]`);
    [this.shown, this.searched] = joinBytes(pieces);
    this.searchable = new Map();
  }

  // The whole text and where each token begins in it, as written or in lower case.
  searchText(lower) {
    if (!this.searchable.has(lower)) {
      const pieces = lower ? this.searched.map((piece) => piece.toLowerCase()) : this.searched;
      const starts = new Float64Array(pieces.length + 1);
      pieces.forEach((piece, k) => starts[k + 1] = starts[k] + piece.length);
      this.searchable.set(lower, {text: pieces.join(''), starts});
    }
    return this.searchable.get(lower);
  }

  // The token of this sequence that has row `token`; -1 if none has.
  find(token) {
    let low = 0;
    let high = this.tokens.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tokens[middle] < token) low = middle + 1; else high = middle;
    }
    return this.tokens[low] === token ? low : -1;
  }
}

// Puts characters whose bytes are spread over tokens where their last byte is. Returns the pieces
// to show, in which the earlier bytes remain, and the pieces to search, in which they do not.
function joinBytes(pieces) {
  const shown = pieces.slice();
  const searched = pieces.slice();
  let run = [];  // of bytes that may become a character: {k, unit}
  pieces.forEach((piece, k) => {
    if (!/[\udc80-\udcff]/.test(piece)) {
      if (piece !== '') run = [];
      return;
    }
    let out = '';
    for (const unit of piece) {
      const code = unit.codePointAt(0);
      if (code < 0xdc80 || code > 0xdcff) {
        run = [];
        out += unit;
        continue;
      }
      run.push({k, unit});
      out += unit;
      const character = decodeLast(run);
      if (character === null) continue;
      const {text, length} = character;
      const used = run.splice(run.length - length);
      const here = used.filter((byte) => byte.k === k).length;
      out = out.slice(0, out.length - here) + text;
      for (const byte of used) {
        if (byte.k !== k) searched[byte.k] = searched[byte.k].slice(0, -1);  // they end it
      }
    }
    shown[k] = searched[k] = out;
  });
  return [shown, searched];
}

const kDecoder = new TextDecoder('utf-8', {fatal: true});

// The character that the last 2 to 4 bytes of a run form, or null.
function decodeLast(run) {
  for (let length = 2; length <= Math.min(4, run.length); ++length) {
    const bytes = run.slice(-length).map((byte) => byte.unit.charCodeAt(0) - 0xdc00);
    if (bytes[0] < 0xc0) continue;
    try {
      const text = kDecoder.decode(new Uint8Array(bytes));
      if ([...text].length === 1) return {text, length};
    } catch {
      // These bytes are no character.
    }
    return null;
  }
  return null;
}
