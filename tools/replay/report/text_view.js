// TextView shows the text of one sequence, a span for each token. The text is cut into chunks of
// whole lines; only chunks near the window have content, so 100,000 tokens cost little.

const kChunkMin = 120;  // tokens; after so many a chunk ends with the next line
const kChunkMax = 200;  // after so many it ends with the next word
const kChunkEnd = 280;  // and after so many in any case
const kPrintMax = 20000;

class TextView {
  constructor(model, onChoose) {
    this.model = model;
    this.onChoose = onChoose;  // called with {token: k} or {draft: row of rejected}
    this.box = byId('text');
    this.options = {rejected: false, rounds: false, hidden: new Set()};
    this.chosen = null;
    this.element = null;  // of the chosen token or draft
    this.hits = null;     // for each token 1 in a hit, 2 in the current one
    this.watcher = new IntersectionObserver((entries) => this.onSeen(entries),
                                            {rootMargin: '800px 0px'});
    this.box.addEventListener('click', (event) => this.onClick(event));
    new ResizeObserver(() => this.onResize()).observe(this.box);
    addEventListener('beforeprint', () => this.beforePrint());
    addEventListener('afterprint', () => this.afterPrint());
  }

  // ---- chunks

  show(sequence) {
    this.text = this.model.textOf(sequence);
    this.chosen = this.element = this.hits = null;
    this.watcher.disconnect();
    this.chunks = [];
    for (const [first, end] of this.cut()) this.chunks.push(this.makeChunk(first, end));
    this.width = this.box.clientWidth;
    this.estimate();
    const parts = this.chunks.map((chunk) => chunk.element);
    if (parts.length === 0) parts.push(make('p', {class: 'muted'}, 'No token was kept.'));
    this.box.replaceChildren(...parts);
    for (const chunk of this.chunks.slice(0, 3)) this.fill(chunk);
    for (const chunk of this.chunks) this.watcher.observe(chunk.element);
  }

  // Ranges of tokens that end with a line, or with a word if the line is long.
  * cut() {
    const {shown} = this.text;
    let first = 0;
    for (let k = 0; k < shown.length; ++k) {
      const size = k + 1 - first;
      const ends = size >= kChunkMin && shown[k].endsWith('\n') ||
          size >= kChunkMax && /^\s/.test(shown[k + 1] ?? '') || size >= kChunkEnd;
      if (!ends) continue;
      yield [first, k + 1];
      first = k + 1;
    }
    if (first < shown.length) yield [first, shown.length];
  }

  makeChunk(first, end) {
    const position = this.text.positions[first];
    const flow = make('div', {class: 'flow', dir: 'auto'});
    const element = make('div', {class: 'chunk'},
                         make('span', {class: 'gutter', title: `output token ${position}`,
                                       'aria-hidden': 'true'}, count(position)), flow);
    const chunk = {first, end, element, flow, filled: false, height: 0};
    element.chunk = chunk;
    return chunk;
  }

  // Gives empty chunks about the height that they will have.
  estimate() {
    const style = getComputedStyle(this.box);
    const perLine = Math.max(10, (this.width - 70) / (parseFloat(style.fontSize) * 0.66));
    const line = parseFloat(style.lineHeight) || 26;
    for (const chunk of this.chunks) {
      if (chunk.filled) continue;
      let lines = 1;
      let column = 0;
      for (let k = chunk.first; k < chunk.end; ++k) {
        const piece = this.text.shown[k];
        column += piece.length;
        if (column > perLine) {
          ++lines;
          column -= perLine;
        }
        if (piece.includes('\n')) {
          lines += piece.split('\n').length - 1;
          column = 0;
        }
      }
      chunk.element.style.height = `${lines * line}px`;
    }
  }

  onSeen(entries) {
    for (const entry of entries) {
      const {chunk} = entry.target;
      if (entry.isIntersecting) this.fill(chunk);
      else if (chunk.filled && !chunk.flow.contains(this.element)) this.empty(chunk);
    }
  }

  fill(chunk) {
    if (chunk.filled) return;
    chunk.filled = true;
    const parts = document.createDocumentFragment();
    for (let k = chunk.first; k < chunk.end; ++k) this.appendToken(parts, k);
    chunk.flow.replaceChildren(parts);
    chunk.element.style.height = '';
  }
  empty(chunk) {
    chunk.element.style.height = `${chunk.element.offsetHeight}px`;
    chunk.flow.replaceChildren();
    chunk.filled = false;
  }

  onResize() {
    if (!this.chunks || this.box.clientWidth === this.width) return;
    this.width = this.box.clientWidth;
    this.estimate();
  }

  chunkOf(k) {
    let low = 0;
    let high = this.chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.chunks[middle].first <= k) low = middle; else high = middle - 1;
    }
    return this.chunks[low];
  }

  // ---- tokens

  stepOf(k) {
    return this.model.get('tokens', 'step', this.text.tokens[k]);
  }

  appendToken(parent, k) {
    const {model, text} = this;
    const token = text.tokens[k];
    const step = this.stepOf(k);
    const index = token - model.tokenStart[step];
    if (index === 0) this.appendStepStart(parent, k, step);
    const numAccepted = model.get('steps', 'accepted', step) ?? 0;
    if (this.options.rejected && index === numAccepted) this.appendRejected(parent, step);
    const kind = kKinds[model.get('tokens', 'kind', token) ?? 3];
    const hit = this.hits?.[k];
    const element = make('span', {class: `t ${kind}${hit ? ' hit' : ''}${hit === 2 ? ' now' : ''}`,
                                  'data-k': k, role: 'button', tabindex: -1});
    appendVisible(element, text.shown[k], true);
    if (text.shown[k] === '') element.append(make('span', {class: 'mark'}, '\u2205'));
    parent.append(element);
    const last = token + 1 === model.tokenStart[step + 1];
    if (this.options.rejected && last && index < numAccepted) this.appendRejected(parent, step);
  }

  appendStepStart(parent, k, step) {
    const gap = this.text.gaps.get(k);
    if (gap) {
      parent.append(make('span', {class: 'gap'}, k === 0 ? `${count(gap)} earlier tokens`
          : `${count(gap)} ${gap === 1 ? 'token' : 'tokens'} not in the trace`));
    }
    if (this.options.rounds) {
      const round = this.model.get('steps', 'round', step);
      parent.append(make('span', {class: 'round', title: `round ${count(round)}`}));
    }
  }

  appendRejected(parent, step) {
    const {model} = this;
    for (let row = model.rejectedStart[step]; row < model.rejectedStart[step + 1]; ++row) {
      const cause = model.causeOf(row);
      if (this.options.hidden.has(cause.key)) continue;
      const piece = model.text('rejected', 'text', row) ?? `[${model.get('rejected', 'id', row)}]`;
      const element = make('del', {class: `t draft ${cause.look}`, 'data-draft': row, role: 'button',
                                   tabindex: -1, title: cause.words});
      parent.append(appendVisible(element, piece));
    }
  }

  // `hidden`: the keys of causes whose draft tokens are left out.
  setOption(name, value) {
    this.options[name] = value;
    if (this.text) this.redraw();
  }

  // Fills the filled chunks again; the first token in the window stays where it is.
  redraw() {
    const keep = this.element ?? [...this.box.querySelectorAll('[data-k]')]
        .find((element) => element.getBoundingClientRect().top > 60);
    const k = keep?.dataset.k;
    const top = keep?.getBoundingClientRect().top;
    for (const chunk of this.chunks.filter((chunk) => chunk.filled)) {
      chunk.filled = false;
      this.fill(chunk);
    }
    if (k !== undefined) {
      const element = this.elementOf({token: Number(k)});
      scrollBy(0, element.getBoundingClientRect().top - top);
    }
    if (this.chosen !== null) this.markChosen();
  }

  // ---- choosing

  onClick(event) {
    const element = event.target.closest('.t');
    if (!element || String(getSelection())) return;
    const {k, draft} = element.dataset;
    this.onChoose(draft === undefined ? {token: Number(k)} : {draft: Number(draft)});
  }

  // The token that a choice belongs to: for a draft the token of its place, or the last before it.
  anchorOf(choice) {
    if (choice.token !== undefined) return choice.token;
    const step = this.model.get('rejected', 'step', choice.draft);
    const first = this.text.find(this.model.tokenStart[step]);
    if (first < 0) return 0;
    const kept = this.model.tokenStart[step + 1] - this.model.tokenStart[step];
    const accepted = this.model.get('steps', 'accepted', step) ?? 0;
    return first + Math.min(kept - 1, accepted);
  }

  elementOf(choice) {
    if (this.chunks.length === 0) return null;
    const chunk = this.chunkOf(this.anchorOf(choice));
    this.fill(chunk);
    return chunk.flow.querySelector(choice.draft === undefined ? `[data-k="${choice.token}"]`
                                                               : `[data-draft="${choice.draft}"]`);
  }

  choose(choice, {focus = true} = {}) {
    this.unmark();
    this.chosen = choice;
    if (choice === null) return;
    this.markChosen();
    if (!this.element) return;
    this.bringIntoView(this.element);
    if (focus) this.element.focus({preventScroll: true});
  }
  unmark() {
    this.element?.classList.remove('chosen');
    this.element?.removeAttribute('aria-current');
    this.element?.setAttribute('tabindex', '-1');
    this.element = null;
  }
  markChosen() {
    this.element = this.elementOf(this.chosen);
    this.element?.classList.add('chosen');
    this.element?.setAttribute('aria-current', 'true');
    this.element?.setAttribute('tabindex', '0');
  }

  bringIntoView(element) {
    const rectangle = element.getBoundingClientRect();
    const panel = byId('panel');
    const sheet = !panel.hidden && getComputedStyle(panel).position === 'fixed';
    const bottom = innerHeight - (sheet ? panel.offsetHeight : 0) - 40;
    if (rectangle.top > 90 && rectangle.bottom < bottom) return;
    scrollBy(0, rectangle.top - (90 + bottom) / 2);
  }

  // The first token of the step `by` steps from that of token k.
  neighbourStep(k, by) {
    let at = k;
    while (at > 0 && this.stepOf(at - 1) === this.stepOf(k)) --at;
    if (by < 0) {
      if (at === 0) return 0;
      --at;
      while (at > 0 && this.stepOf(at - 1) === this.stepOf(at)) --at;
      return at;
    }
    const start = at;
    while (at < this.text.tokens.length && this.stepOf(at) === this.stepOf(k)) ++at;
    return at < this.text.tokens.length ? at : start;
  }

  // ---- hits and printing

  setHits(hits) {
    this.hits = hits;
    for (const element of this.box.querySelectorAll('[data-k]')) {
      const hit = hits?.[Number(element.dataset.k)];
      element.classList.toggle('hit', Boolean(hit));
      element.classList.toggle('now', hit === 2);
    }
  }

  // Prints all of a text of up to kPrintMax tokens, else as many around the chosen one.
  beforePrint() {
    if (!this.text) return;
    const {length} = this.text.tokens;
    const from = length <= kPrintMax || this.chosen === null ? 0
        : Math.max(0, this.anchorOf(this.chosen) - kPrintMax / 2);
    let [first, end] = [length, 0];
    for (const chunk of this.chunks) {
      const printed = chunk.end > from && chunk.end <= from + kPrintMax + kChunkEnd;
      chunk.element.classList.toggle('not_printed', !printed);
      if (!printed) continue;
      this.fill(chunk);
      [first, end] = [Math.min(first, chunk.first), chunk.end];
    }
    if (end - first < length) {
      this.note = make('p', {class: 'warning'}, `Tokens ${count(first)} to ${count(end - 1)} of ` +
          `${count(length)} are printed; choose a token to print what is around it.`);
      this.box.before(this.note);
    }
  }
  afterPrint() {
    this.note?.remove();
    for (const chunk of this.chunks ?? []) {
      chunk.element.classList.remove('not_printed');
      this.watcher.unobserve(chunk.element);
      this.watcher.observe(chunk.element);  // reports again, so that distant ones are emptied
    }
  }
}
