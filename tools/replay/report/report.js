// Report puts the views together: the choice of a sequence and a token, keys, the link, the theme.

class Report {
  constructor(model) {
    this.model = model;
    this.sequence = -1;
    this.choice = null;
    this.view = new RoundsView(model);
    this.timeline = new Timeline(this.view, (first, end) => this.openRound(first, end));
    this.heatMap = new HeatMap(this.view);
    this.table = new SequenceTable(model, (s) => this.chooseSequence(s));
    this.text = new TextView(model, (choice) => this.choose(choice));
    this.panel = new TokenPanel(model, {
      onMove: (by) => this.move(by),
      onClose: () => this.closePanel(),
      onChoose: (choice) => this.choose(choice),
    });
    this.causes = new CauseFilter(model, (hidden) => {
      this.text.options.rejected = true;
      this.text.setOption('hidden', hidden);
    });
    this.search = new Search(model, {
      onGo: (s, k) => this.goTo(s, {token: k}, {focus: false}),
      onHits: (marks) => this.text.setHits(marks),
    });
    this.connectControls();
    this.restore();
    this.drawCharts();
  }

  connectControls() {
    const {view} = this;
    makeChoice(byId('axis'), 'axis', [['round', 'by round'], ['time', 'by time']],
               (axis) => view.setAxis(axis));
    makeChoice(byId('scope'), 'scope', [['all', 'all sequences'], ['one', 'chosen sequence']],
               (scope) => view.setSequence(scope === 'one' ? this.sequence : null));
    byId('zoom_reset').addEventListener('click', () => {
      view.showAll();
      view.changed();
    });
    view.onChange(() => this.describeWindow());
    byId('show_rejected').addEventListener('change', (event) => {
      this.causes.clear();
      this.text.setOption('rejected', event.target.checked);
    });
    byId('show_rounds').addEventListener('change', (event) =>
        this.text.setOption('rounds', event.target.checked));
    addEventListener('keydown', (event) => this.onKey(event));
    addEventListener('hashchange', () => this.restore());
    this.connectPrinting();
    let frame = 0;
    new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => this.drawCharts());
    }).observe(byId('rounds'));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.drawCharts());
  }

  // Canvases keep the colours that they were drawn with, and paper is light.
  connectPrinting() {
    const root = document.documentElement;
    let theme;
    addEventListener('beforeprint', () => {
      theme = root.getAttribute('data-theme') ?? 'auto';
      root.setAttribute('data-theme', 'light');
      this.drawCharts();
    });
    addEventListener('afterprint', () => {
      useTheme(theme);
      this.drawCharts();
    });
  }

  drawCharts() {
    this.timeline.draw();
    this.heatMap.draw();
    this.describeWindow();
  }

  describeWindow() {
    const {view} = this;
    byId('zoom_reset').disabled = view.isWhole();
    const [first, end] = view.entriesInWindow();
    byId('window').textContent = view.isWhole() || end <= first ? ''
        : `rounds ${count(this.model.get('steps', 'round', view.first[first]))} to ` +
          `${count(this.model.get('steps', 'round', view.first[end - 1]))}`;
  }

  // ---- choosing

  chooseSequence(s, {scroll = false} = {}) {
    if (s === this.sequence) return;
    this.sequence = s;
    this.choice = null;
    this.panel.close();
    this.table.choose(s, scroll);
    this.text.show(s);
    this.showSequenceFacts(s);
    this.timeline.chosenStep = -1;
    if (this.view.sequence !== null) this.view.setSequence(s);
    else this.timeline.draw();
    this.search.setSequence(s);
    this.writeLink();
  }

  choose(choice, options) {
    this.choice = choice;
    if (choice.draft !== undefined) this.showRejected(choice.draft);
    this.panel.show(this.text.text, choice);
    this.text.choose(choice, options);
    this.timeline.choose(choice.draft === undefined
        ? this.text.stepOf(choice.token) : this.model.get('rejected', 'step', choice.draft));
    this.writeLink();
  }

  // Makes a draft token that was not kept visible in the text.
  showRejected(row) {
    const box = byId('show_rejected');
    if (box.checked && !this.causes.hidden.has(this.model.causeOf(row).key)) return;
    box.checked = true;
    this.causes.clear();
    this.text.setOption('rejected', true);
  }

  goTo(s, choice, options) {
    this.chooseSequence(s, {scroll: true});
    this.choose(choice, options);
  }

  // The step of the shown sequence among [first, end), else the first with a token.
  openRound(first, end) {
    const {model} = this;
    let step = -1;
    for (let i = first; i < end; ++i) {
      const has = model.tokenStart[i + 1] > model.tokenStart[i];
      const mine = model.get('steps', 'sequence', i) === this.sequence;
      if (has && (step < 0 || mine)) step = i;
      if (has && mine) break;
    }
    if (step < 0) return;
    const s = model.get('steps', 'sequence', step);
    this.goTo(s, {token: model.textOf(s).find(model.tokenStart[step])});
  }

  move(by) {
    const {length} = this.text.text.tokens;
    if (length === 0) return;
    const at = this.choice === null ? (by > 0 ? -1 : 0) : this.text.anchorOf(this.choice);
    this.choose({token: Math.max(0, Math.min(length - 1, at + by))});
  }
  moveStep(by) {
    const at = this.text.anchorOf(this.choice);
    this.choose({token: this.text.neighbourStep(at, by)});
  }

  closePanel() {
    this.panel.close();
    this.choice = null;
    this.text.choose(null);
    this.timeline.choose(-1);
    this.writeLink();
  }

  // ---- keys

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest?.('input, select, textarea');
    if (event.key === '/' && !typing) {
      event.preventDefault();
      byId('query').focus();
      byId('query').select();
      return;
    }
    if (typing || !this.text.text) return;
    const inText = event.target.closest?.('#text') && this.choice !== null;
    const keys = {
      ArrowLeft: () => this.move(-1),
      ArrowRight: () => this.move(1),
      ArrowUp: inText && (() => this.moveStep(-1)),
      ArrowDown: inText && (() => this.moveStep(1)),
      Home: inText && (() => this.choose({token: 0})),
      End: inText && (() => this.choose({token: this.text.text.tokens.length - 1})),
      Escape: this.choice !== null && (() => this.closePanel()),
    };
    if (!keys[event.key] || event.target.closest?.('.table_box')) return;
    event.preventDefault();
    keys[event.key]();
  }

  // ---- the link: #sequence=3&token=120 or #sequence=3&draft=17

  writeLink() {
    const parts = new URLSearchParams({sequence: this.sequence, ...this.choice ?? {}});
    history.replaceState(null, '', `#${parts}`);
  }

  restore() {
    const {model} = this;
    if (model.numSequences === 0) return;
    const parts = new URLSearchParams(location.hash.slice(1));
    const number = (name, end) => {
      const value = Number(parts.get(name) ?? NaN);
      return Number.isInteger(value) && value >= 0 && value < end ? value : null;
    };
    const s = number('sequence', model.numSequences) ?? 0;
    const token = number('token', model.textOf(s).tokens.length);
    const draft = number('draft', model.numRejected);
    this.chooseSequence(s, {scroll: true});
    if (token !== null) this.choose({token});
    else if (draft !== null && this.ownsDraft(s, draft)) this.choose({draft});
  }
  ownsDraft(s, draft) {
    return this.model.get('steps', 'sequence', this.model.get('rejected', 'step', draft)) === s;
  }

  showSequenceFacts(s) {
    const {model} = this;
    const text = (name) => model.text('sequences', name, s);
    const params = Object.entries(model.get('sequences', 'params', s) ?? {});
    const grammar = text('grammar');
    byId('sequence_facts').replaceChildren(
        literal(text('request_id') ?? '', {class: 'request'}),
        make('span', {class: 'muted'},
             'handle ', literal(text('handle') ?? '\u2013', {class: 'code'}), ' \u00b7 seed ',
             literal(model.get('sequences', 'seed', s) ?? '\u2013', {class: 'code'})),
        ...params.map(([name, value]) => make('span', {class: 'chip'}, literal(name), ' ',
             literal(typeof value === 'string' ? value : JSON.stringify(value), {class: 'code'}))),
        ...(grammar === null ? [] : [make('span', {class: 'chip'}, 'grammar ', literal(grammar))]));
    this.showKinds();
    this.causes.show(s);
  }

  // The legend, with the number of tokens of each kind in the sequence.
  showKinds() {
    const counts = kKinds.map(() => 0);
    const kinds = this.model.data.tokens?.kind ?? [];
    for (const token of this.text.text.tokens) ++counts[kinds[token] ?? 3];
    byId('kinds').replaceChildren(...kKinds.map((kind, i) => counts[i] === 0 ? null
        : make('li', {title: kKindMeanings[i]}, make('span', {class: `t ${kind}`}, kind),
               ` ${count(counts[i])}`)).filter(Boolean));
  }
}

// ---- the page around it -------------------------------------------------------------------------

function showTrace(trace) {
  document.title = `${trace.file ?? 'trace'} \u2013 specd report`;
  byId('file').append(literal(trace.file ?? ''));
  const started = trace.started ? trace.started.replace('T', ' ') : null;
  const list = facts([
    ['sequences', count(trace.sequences ?? null)],
    ['rounds', count(trace.rounds ?? null)],
    ['kept tokens', count(trace.tokens ?? null)],
    ['drafted', count(trace.drafted ?? null)],
    ['accepted, as judged', `${count(trace.accepted ?? null)} (${percent(trace.accepted, trace.drafted)})`],
    ['dropped records', count(trace.dropped ?? null)],
    ['level', trace.level],
    ['backend', trace.backend],
    ['device', trace.device ? literal(trace.device) : null],
    ['vocabulary', count(trace.vocab_size ?? null)],
    ['specd', trace.specd],
    ['started', started],
  ]);
  while (list.firstChild) {
    byId('facts').append(make('div', {}, list.firstChild, list.firstChild.nextSibling));
  }
  byId('findings').append(...(trace.findings ?? []).map((finding) =>
    make('li', {class: finding.fault ? 'fault' : null},
         literal(`${finding.fault ? 'fault' : 'advice'}: ${finding.sentence}`))));
  byId('warnings').append(...(trace.warnings ?? []).map((warning) =>
      make('li', {class: 'warning'}, literal(warning))));
  byId('made').textContent = 'specd-replay report';
}

const kThemes = ['auto', 'light', 'dark'];

function useTheme(theme) {
  if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', theme);
  byId('theme').textContent = `Theme: ${theme}`;
}

function start() {
  let theme = kThemes.includes(remembered('theme')) ? remembered('theme') : 'auto';
  useTheme(theme);
  try {
    const model = new Model(JSON.parse(byId('data').textContent));
    showTrace(model.trace ?? {});
    showAcceptance(model);
    showKey();
    const report = new Report(model);
    byId('theme').addEventListener('click', () => {
      theme = kThemes[(kThemes.indexOf(theme) + 1) % kThemes.length];
      remember('theme', theme);
      useTheme(theme);
      report.drawCharts();
    });
    performance.mark('ready');
    document.documentElement.setAttribute('data-ready', 'true');
  } catch (error) {
    byId('failure').textContent = `The report cannot be shown: ${error.message}.`;
    byId('failure').hidden = false;
    byId('main').hidden = true;
    throw error;
  }
}

start();
