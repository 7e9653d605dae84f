// RoundsView is what the charts share: the rounds in scope, the window on them, and the axis.

class RoundsView {
  constructor(model) {
    this.model = model;
    this.axis = 'round';
    this.sequence = null;  // null: all sequences
    this.listeners = [];
    this.gather();
    this.showAll();
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
  changed() {
    for (const listener of this.listeners) listener();
  }

  setAxis(axis) {
    const [first, last] = this.entriesInWindow();
    const whole = this.isWhole();
    this.axis = axis;
    this.showAll();
    if (!whole && last > first) {
      this.from = this.x(first);
      this.to = Math.max(this.x(last - 1) + 1, this.from + this.smallest());
    }
    this.changed();
  }

  setSequence(sequence) {
    this.sequence = sequence;
    this.gather();
    this.changed();
  }

  // Entries are rounds, or the steps of the one sequence in scope. Ascending in both axes.
  gather() {
    const {model} = this;
    const steps = this.sequence === null ? null : model.stepsOf(this.sequence);
    this.length = steps === null ? model.rounds.length : steps.length;
    this.first = new Int32Array(this.length);  // its first step
    this.last = new Int32Array(this.length);   // the end of its steps
    this.drafted = new Float64Array(this.length);
    this.accepted = new Float64Array(this.length);
    this.kept = new Float64Array(this.length);
    this.failed = new Uint8Array(this.length);
    for (let i = 0; i < this.length; ++i) {
      this.first[i] = steps === null ? model.rounds[i] : steps[i];
      this.last[i] = steps === null ? model.rounds[i + 1] ?? model.numSteps : steps[i] + 1;
      for (let step = this.first[i]; step < this.last[i]; ++step) {
        this.drafted[i] += model.get('steps', 'drafted', step) ?? 0;
        this.accepted[i] += model.accepted(step);
        this.kept[i] += model.get('steps', 'kept', step) ?? 0;
        if (model.text('steps', 'status', step) !== 'ok') this.failed[i] = 1;
      }
    }
  }

  time(i) {
    return this.model.get('steps', 'time_ms', this.first[i]) ?? 0;
  }
  verify(i) {
    return this.model.get('steps', 'verify_us', this.first[i]) ?? 0;
  }
  x(i) {
    return this.axis === 'time' ? this.time(i) : this.model.ordinal[this.first[i]];
  }

  // The whole axis, whatever the scope, so that the scopes can be compared.
  extent() {
    const {model} = this;
    if (model.numSteps === 0) return [0, 1];
    if (this.axis === 'round') return [0, Math.max(1, model.rounds.length)];
    const last = model.get('steps', 'time_ms', model.numSteps - 1) ?? 0;
    return [0, last > 0 ? last * 1.002 : 1];
  }
  smallest() {
    const [from, to] = this.extent();
    return Math.min(to - from, this.axis === 'round' ? 4 : (to - from) / 10000);
  }
  isWhole() {
    const [from, to] = this.extent();
    return this.from <= from && this.to >= to;
  }
  showAll() {
    [this.from, this.to] = this.extent();
  }
  show(from, to) {
    const [low, high] = this.extent();
    const size = Math.min(high - low, Math.max(to - from, this.smallest()));
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(low, middle - size / 2), high - size);
    this.to = this.from + size;
    this.changed();
  }

  // The entries [first, end) of the window.
  entriesInWindow() {
    return [this.entryAt(this.from - (this.axis === 'round' ? 0.999 : 0)), this.entryAt(this.to)];
  }
  // The first entry at x or after it.
  entryAt(x) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.x(middle) < x) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Sums entries into bins of equal width over the window.
  binned(numBins) {
    const bins = Array.from({length: numBins}, () =>
        ({entries: 0, drafted: 0, accepted: 0, verify: 0, failed: false, first: -1, last: -1}));
    const [first, end] = this.entriesInWindow();
    for (let i = first; i < end; ++i) {
      const bin = bins[this.binOf(i, numBins)];
      if (bin.first < 0) bin.first = i;
      bin.last = i;
      ++bin.entries;
      bin.drafted += this.drafted[i];
      bin.accepted += this.accepted[i];
      bin.verify += this.verify(i);
      bin.failed ||= this.failed[i] === 1;
    }
    return bins;
  }
  binOf(i, numBins) {
    const middle = this.x(i) + (this.axis === 'round' ? 0.5 : 0);
    const bin = Math.floor((middle - this.from) / (this.to - this.from) * numBins);
    return Math.min(numBins - 1, Math.max(0, bin));
  }
  // Bins of at least `pixels` pixels; one per round where they have the room.
  numBins(width, pixels) {
    const fitting = Math.max(1, Math.floor(width / pixels));
    return this.axis === 'round' ? Math.max(1, Math.min(fitting, Math.round(this.to - this.from)))
                                 : fitting;
  }
}

// ---- drawing ------------------------------------------------------------------------------------

const kLeft = 46;
const kRight = 58;

// Sizes a canvas for the screen and returns its context, cleared, in CSS pixels.
function beginDrawing(canvas, height) {
  forgetColours();
  const width = canvas.parentElement.clientWidth;
  const scale = window.devicePixelRatio || 1;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  return {context, width, plot: Math.max(10, width - kLeft - kRight)};
}

// Round numbers from 0 to max or beyond, about `wanted` of them.
function ticksUpTo(max, wanted) {
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let tick = 0; tick < max + step * 0.999; tick += step) ticks.push(tick);
  return ticks;
}

function drawHorizontalAxis(context, view, plot, y) {
  context.fillStyle = cssColour('muted');
  context.textAlign = 'center';
  const span = view.to - view.from;
  const step = ticksUpTo(span, Math.max(2, Math.floor(plot / 90)))[1] ?? span;
  const label = (x) => view.axis === 'time' ? milliseconds(x)
      : count(view.model.get('steps', 'round', view.model.rounds[Math.round(x)] ?? 0) ?? 0);
  const unit = view.axis === 'round' ? Math.max(1, Math.round(step)) : step;
  for (let x = Math.ceil(view.from / unit) * unit; x <= view.to - unit * 0.2; x += unit) {
    const at = kLeft + (x + (view.axis === 'round' ? 0.5 : 0) - view.from) / span * plot;
    if (at > kLeft + plot - 14) break;
    context.fillText(label(x), Math.max(at, kLeft + 6), y);
  }
}
