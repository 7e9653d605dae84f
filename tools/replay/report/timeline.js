// Timeline draws a bar for each round, coloured by its accepted and drafted tokens, and below the
// bars the verify time in a lane of its own. The mouse selects a window; arrows move a cursor.

const kTimelineHeight = 226;
const kLaneHeight = 44;  // of the verify time
const kLaneGap = 14;
const kOverviewHeight = 26;

class Timeline {
  constructor(view, onOpen) {
    this.view = view;
    this.onOpen = onOpen;  // called with a step
    this.canvas = byId('timeline');
    this.overview = byId('overview');
    this.tip = byId('tip');
    this.cursor = -1;  // an entry
    this.chosenStep = -1;
    this.drag = null;
    view.onChange(() => this.draw());
    this.listenToMouse();
    this.listenToOverview();
    this.canvas.addEventListener('keydown', (event) => this.onKey(event));
    this.canvas.addEventListener('blur', () => this.setCursor(-1));
  }

  choose(step) {
    this.chosenStep = step;
    this.draw();
  }

  // ---- drawing

  draw() {
    const {view} = this;
    const {context, plot} = beginDrawing(this.canvas, kTimelineHeight);
    const top = 8;
    const floor = kTimelineHeight - 20;  // of the lane
    const bottom = floor - kLaneHeight - kLaneGap;
    this.plot = plot;
    const bins = view.binned(view.numBins(plot, 3));
    const used = bins.filter((bin) => bin.entries > 0);
    const largest = (name, least) => Math.max(least, ...used.map((bin) => bin[name] / bin.entries));
    const ticks = ticksUpTo(largest('drafted', 1), 4);
    const max = ticks[ticks.length - 1];
    const yOf = (value) => bottom - value / max * (bottom - top);
    this.drawGrid(context, plot, ticks, yOf);
    this.drawBars(context, bins, plot, yOf, bottom);
    this.drawLane(context, bins, plot, floor, largest('verify', 1e-3));
    drawHorizontalAxis(context, view, plot, kTimelineHeight - 9);
    this.drawChosen(context, plot, top, floor);
    this.drawSelection(context, top, floor);
    this.drawOverview();
    this.canvas.setAttribute('aria-label', this.summary());
  }

  drawGrid(context, plot, ticks, yOf) {
    context.textAlign = 'right';
    for (const tick of ticks) {
      context.fillStyle = cssColour('grid');
      context.fillRect(kLeft, Math.round(yOf(tick)), plot, 1);
      context.fillStyle = cssColour('muted');
      context.fillText(count(tick), kLeft - 6, yOf(tick));
    }
  }

  drawBars(context, bins, plot, yOf, bottom) {
    const width = plot / bins.length;
    const gap = width >= 5 ? 1 : 0;
    bins.forEach((bin, b) => {
      if (bin.entries === 0) return;
      const left = kLeft + b * width;
      const bar = (value, colour) => {
        context.fillStyle = colour;
        context.fillRect(left, yOf(value), Math.max(1, width - gap), bottom - yOf(value));
      };
      bar(bin.drafted / bin.entries, cssColour('drafted'));
      bar(bin.accepted / bin.entries, cssColour('taken'));
      if (bin.failed) {
        context.fillStyle = cssColour('bad');
        context.fillRect(left, bottom + 1, Math.max(2, width - gap), 3);
      }
    });
  }

  // The verify time from 0 to its largest round number, which stands at the right.
  drawLane(context, bins, plot, floor, largest) {
    const ticks = ticksUpTo(largest, 2);
    const max = ticks[ticks.length - 1];
    const yOf = (value) => floor - value / max * kLaneHeight;
    for (const tick of [0, max]) {
      context.fillStyle = cssColour('grid');
      context.fillRect(kLeft, Math.round(yOf(tick)), plot, 1);
    }
    context.fillStyle = cssColour('muted');
    context.textAlign = 'right';
    context.fillText('verify', kLeft - 6, yOf(max / 2));
    context.textAlign = 'left';
    context.fillText(microseconds(max).replace(/\.0+ /, ' '), kLeft + plot + 6, yOf(max) + 4);
    context.fillText('0', kLeft + plot + 6, yOf(0) - 4);
    this.drawVerifyTimes(context, bins, plot, yOf);
  }

  drawVerifyTimes(context, bins, plot, yOf) {
    context.strokeStyle = cssColour('line');
    context.lineWidth = 1.25;
    context.beginPath();
    let drawing = false;
    bins.forEach((bin, b) => {
      if (bin.entries === 0) return;
      const x = kLeft + (b + 0.5) * plot / bins.length;
      const y = yOf(bin.verify / bin.entries);
      if (drawing) context.lineTo(x, y); else context.moveTo(x, y);
      drawing = true;
    });
    context.stroke();
  }

  drawChosen(context, plot, top, bottom) {
    const {view} = this;
    const mark = (x, colour) => {
      if (x < view.from || x > view.to) return;
      context.fillStyle = colour;
      const at = kLeft + (x - view.from) / (view.to - view.from) * plot;
      context.fillRect(Math.round(at) - 1, top, 2, bottom - top);
    };
    const half = view.axis === 'round' ? 0.5 : 0;
    if (this.chosenStep >= 0) {
      const {model} = view;
      mark(half + (view.axis === 'time' ? model.get('steps', 'time_ms', this.chosenStep) ?? 0
                                        : model.ordinal[this.chosenStep]), cssColour('accent'));
    }
    if (this.cursor >= 0) mark(view.x(this.cursor) + half, cssColour('text'));
  }

  drawSelection(context, top, bottom) {
    if (this.drag === null || !this.drag.moved) return;
    context.fillStyle = cssColour('selection');
    const left = Math.min(this.drag.from, this.drag.to);
    context.fillRect(left, top, Math.abs(this.drag.to - this.drag.from), bottom - top);
  }

  // The whole axis in small, with the window.
  drawOverview() {
    const {view} = this;
    const {context, plot} = beginDrawing(this.overview, kOverviewHeight);
    const [low, high] = view.extent();
    const {from, to} = view;
    [view.from, view.to] = [low, high];
    const bins = view.binned(view.numBins(plot, 2));
    [view.from, view.to] = [from, to];
    const max = Math.max(1, ...bins.map((bin) => bin.entries ? bin.drafted / bin.entries : 0));
    bins.forEach((bin, b) => {
      if (bin.entries === 0) return;
      for (const [value, name] of [[bin.drafted, 'drafted'], [bin.accepted, 'taken']]) {
        const height = value / bin.entries / max * (kOverviewHeight - 4);
        context.fillStyle = cssColour(name);
        context.fillRect(kLeft + b * plot / bins.length, kOverviewHeight - 2 - height,
                         Math.ceil(plot / bins.length), height);
      }
    });
    const at = (x) => kLeft + (x - low) / (high - low) * plot;
    context.fillStyle = cssColour('veil');
    context.fillRect(kLeft, 0, at(from) - kLeft, kOverviewHeight);
    context.fillRect(at(to), 0, kLeft + plot - at(to), kOverviewHeight);
    context.strokeStyle = cssColour('muted');
    context.strokeRect(at(from) + 0.5, 0.5, Math.max(2, at(to) - at(from) - 1),
                       kOverviewHeight - 1);
  }

  summary() {
    const [first, end] = this.view.entriesInWindow();
    let drafted = 0;
    let accepted = 0;
    for (let i = first; i < end; ++i) {
      drafted += this.view.drafted[i];
      accepted += this.view.accepted[i];
    }
    return `Timeline of ${count(end - first)} rounds: ${count(drafted)} draft tokens, ` +
        `${percent(accepted, drafted)} accepted. Arrows move between rounds, Enter opens one.`;
  }

  // ---- input

  xAt(pixels) {
    const part = (pixels - kLeft) / this.plot;
    return this.view.from + Math.min(1, Math.max(0, part)) * (this.view.to - this.view.from);
  }
  entryUnder(pixels) {
    const {view} = this;
    if (view.length === 0) return -1;
    const x = this.xAt(pixels);
    if (view.axis === 'round') {
      const entry = view.entryAt(Math.floor(x));
      return Math.min(entry, view.length - 1);
    }
    const after = Math.min(view.entryAt(x), view.length - 1);
    return after > 0 && x - view.x(after - 1) < view.x(after) - x ? after - 1 : after;
  }

  listenToMouse() {
    const {canvas} = this;
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      this.drag = {from: event.offsetX, to: event.offsetX, moved: false};
    });
    canvas.addEventListener('pointermove', (event) => {
      if (this.drag === null) return this.hover(event.offsetX);
      this.drag.to = event.offsetX;
      this.drag.moved ||= Math.abs(this.drag.to - this.drag.from) > 4;
      this.draw();
    });
    canvas.addEventListener('pointerup', (event) => {
      const {drag} = this;
      this.drag = null;
      if (drag === null) return;
      if (drag.moved) {
        const ends = [this.xAt(drag.from), this.xAt(drag.to)].sort((a, b) => a - b);
        return this.view.show(ends[0], ends[1]);
      }
      const entry = this.entryUnder(event.offsetX);
      if (entry >= 0) this.onOpen(this.view.first[entry], this.view.last[entry]);
    });
    canvas.addEventListener('pointercancel', () => this.drag = null);
    canvas.addEventListener('pointerleave', () => this.tip.hidden = true);
    canvas.addEventListener('dblclick', () => {
      this.view.showAll();
      this.view.changed();
    });
  }

  listenToOverview() {
    const move = (event) => {
      const [low, high] = this.view.extent();
      const middle = low + (event.offsetX - kLeft) / this.plot * (high - low);
      const half = (this.view.to - this.view.from) / 2;
      this.view.show(middle - half, middle + half);
    };
    this.overview.addEventListener('pointerdown', (event) => {
      this.overview.setPointerCapture(event.pointerId);
      move(event);
    });
    this.overview.addEventListener('pointermove', (event) => {
      if (event.buttons & 1) move(event);
    });
  }

  onKey(event) {
    const {view} = this;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const size = view.to - view.from;
    const middle = (view.from + view.to) / 2;
    const keys = {
      ArrowLeft: () => this.moveCursor(-1),
      ArrowRight: () => this.moveCursor(1),
      Enter: () => this.cursor >= 0 &&
          this.onOpen(view.first[this.cursor], view.last[this.cursor]),
      '+': () => view.show(middle - size / 4, middle + size / 4),
      '-': () => view.show(middle - size, middle + size),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }

  moveCursor(by) {
    const {view} = this;
    const [first] = view.entriesInWindow();
    const next = this.cursor < 0 ? first : this.cursor + by;
    const entry = Math.max(0, Math.min(view.length - 1, next));
    const x = view.x(entry);
    if (x < view.from) view.show(x, x + view.to - view.from);
    if (x + 1 > view.to) view.show(x + 1 - (view.to - view.from), x + 1);
    this.setCursor(entry);
    const at = kLeft + (x - view.from) / (view.to - view.from) * this.plot;
    this.showTip(entry, at);
  }
  setCursor(entry) {
    if (entry === this.cursor) return;
    this.cursor = entry;
    if (entry < 0) this.tip.hidden = true;
    this.draw();
  }

  hover(pixels) {
    const entry = this.entryUnder(pixels);
    if (entry >= 0) this.showTip(entry, pixels);
  }
  showTip(entry, pixels) {
    const {view, tip} = this;
    const {model} = view;
    const step = view.first[entry];
    const sequences = view.last[entry] - step;
    const drafted = view.drafted[entry];
    const lines = [
      `round ${count(model.get('steps', 'round', step))} at ${milliseconds(view.time(entry))}`,
      `${count(sequences)} ${sequences === 1 ? 'sequence' : 'sequences'}, ` +
          `${count(view.kept[entry])} kept tokens`,
      `${count(drafted)} drafted, ${count(view.accepted[entry])} accepted ` +
          `(${percent(view.accepted[entry], drafted)})`,
      `verify ${microseconds(view.verify(entry))}`,
    ];
    if (view.failed[entry]) lines.push('a sequence was not answered with ok');
    tip.replaceChildren(...lines.map((line) => make('div', {}, line)));
    placeTip(tip, this.canvas, pixels, 12);
  }
}

// Shows a tip beside a point of a canvas, inside the chart.
function placeTip(tip, canvas, x, y) {
  tip.hidden = false;
  const room = canvas.parentElement.clientWidth;
  const left = x + 14 + tip.offsetWidth > room ? x - 14 - tip.offsetWidth : x + 14;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${canvas.offsetTop + y}px`;
}
