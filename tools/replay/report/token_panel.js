// TokenPanel shows why the chosen token or draft token was decided as it was.

class TokenPanel {
  constructor(model, {onMove, onClose, onChoose}) {
    this.model = model;
    this.box = byId('panel');
    this.tree = new TreeView(model, (table, row) => this.onChoose(this.choiceOf(table, row)));
    Object.assign(this, {onMove, onClose, onChoose});
  }

  close() {
    this.box.hidden = true;
    this.box.replaceChildren();
    document.body.classList.remove('with_panel');
  }

  show(text, choice) {
    const {model} = this;
    this.text = text;
    const table = choice.token === undefined ? 'rejected' : 'tokens';
    const row = choice.token === undefined ? choice.draft : text.tokens[choice.token];
    const step = model.get(table, 'step', row);
    const decision = model.get(table, 'decision', row);
    const tree = this.tree.draw(step, table, row);
    const parts = [this.head(table, row, choice), tree ?? this.round(step, table, row)];
    const node = this.tree.nodeOf(step, table, row);
    if (tree !== null) {
      parts.push(...this.node(node, model.text('steps', 'method', step), table, decision));
    } else if (decision !== null) {
      parts.push(...this.decision(decision));
    } else {
      parts.push(make('p', {class: 'muted'}, table === 'rejected'
          ? 'The draft ended before this place, so nothing was decided here.'
          : 'The trace has no decision for this token.'));
    }
    parts.push(this.stepFacts(step));
    this.box.replaceChildren(...parts.filter((part) => part !== null));
    this.box.hidden = false;
    this.box.scrollTop = 0;
    document.body.classList.add('with_panel');
  }

  choiceOf(table, row) {
    return table === 'rejected' ? {draft: row} : {token: this.text.find(row)};
  }

  head(table, row, choice) {
    const {model} = this;
    const kept = table === 'tokens';
    const kind = kept ? kKinds[model.get('tokens', 'kind', row) ?? 3] : 'draft';
    const word = kept ? kind : kFates[model.get('rejected', 'fate', row) ?? 0];
    const piece = kept ? this.text.shown[choice.token] : model.text('rejected', 'text', row);
    const id = model.get(table, 'id', row);
    const button = (label, name, action) => {
      const element = make('button', {type: 'button', class: 'quiet', 'aria-label': name}, label);
      element.addEventListener('click', action);
      return element;
    };
    const step = model.get(table, 'step', row);
    const position = kept ? this.text.positions[choice.token]
        : (model.get('steps', 'base', step) ?? 0) + model.get('rejected', 'place', row);
    return make('header', {},
        make('div', {class: 'panel_title'},
             pieceOf(piece ?? `[${id}]`, {class: kind, id: 'panel_piece'}),
             make('span', {class: 'space'}),
             button('\u2190', 'Previous token', () => this.onMove(-1)),
             button('\u2192', 'Next token', () => this.onMove(1)),
             button('\u00d7', 'Close', () => this.onClose())),
        make('p', {class: 'panel_line'},
             make('span', {class: `kind ${kind}`, id: 'panel_kind'}, word),
             ` id ${id ?? '\u2013'} \u00b7 position ${count(position)}`),
        kept ? null : make('p', {class: 'panel_line muted', id: 'panel_cause'},
                           literal(model.causeOf(row).words)));
  }

  // The places of the step: draft tokens that were accepted or rejected, then the final token.
  round(step, table, row) {
    const {model} = this;
    const list = make('ol', {class: 'places', 'aria-label': 'The places of this round'});
    const first = this.text.find(model.tokenStart[step]);
    const add = (cls, piece, choice, mine) => {
      const button = make('button', {type: 'button', class: `t ${cls}`,
                                     'aria-current': mine ? 'true' : null}, pieceOf(piece));
      button.addEventListener('click', () => this.onChoose(choice));
      list.append(make('li', {}, button));
    };
    const addRejected = () => {
      for (let r = model.rejectedStart[step]; r < model.rejectedStart[step + 1]; ++r) {
        add(`draft ${model.causeOf(r).look}`,
            model.text('rejected', 'text', r) ?? `[${model.get('rejected', 'id', r)}]`, {draft: r},
            table === 'rejected' && r === row);
      }
    };
    const accepted = model.get('steps', 'accepted', step) ?? 0;
    const kept = model.tokenStart[step + 1] - model.tokenStart[step];
    for (let j = 0; j < kept; ++j) {
      if (j === accepted) addRejected();
      const token = model.tokenStart[step] + j;
      add(kKinds[model.get('tokens', 'kind', token) ?? 3], this.text.shown[first + j],
          {token: first + j}, table === 'tokens' && token === row);
    }
    if (accepted >= kept) addRejected();
    return list;
  }

  decision(d) {
    const get = this.getOf(d);
    const draft = get('draft_id') === null ? [] : [this.draft(d, get), this.acceptance(get)];
    return [this.why(d), ...draft, this.draw(d, get), this.candidates(d, get), this.grammar(d)];
  }

  // A token of a tree. A decision is that of a place, so of a rejected node it has the candidates
  // alone. `node` is null for the final token.
  node(node, method, table, d) {
    const get = this.getOf(d);
    const rejected = table === 'rejected';
    const share = node === null ? [] : this.share(node, method);
    if (d === null) return share;
    const place = [this.candidates(d, get), this.grammar(d)];
    return rejected ? [...share, ...place] : [this.why(d), ...share, this.draw(d, get), ...place];
  }

  getOf(d) {
    return (name) => this.model.get('decisions', name, d);
  }

  why(d) {
    return make('p', {class: 'why', id: 'panel_why'}, this.model.text('decisions', 'why', d) ?? '');
  }

  // The numbers of a node, and its coin.
  share(node, method) {
    const get = (name) => this.model.get('nodes', name, node);
    const [share] = kShares[method] ?? [''];
    const [bound, coin] = [get('bound'), get('coin')];
    return [section('Draft token', facts([
      ['kind', kNodeKinds[get('kind') ?? 0]],
      ['p(x)', exact(get('p'), 'panel_p'), kMeanings.p],
      ['q(x)', exact(get('q'), 'panel_q'), kMeanings.q],
      ['d(x)', exact(get('d')), 'the proposal: 1, q, or q over the rest, by the kind'],
      [share, exact(bound)],
      ['verdict', kNodeFates[get('fate') ?? 2]],
    ])), coin === null ? null : this.coin(coin, bound, share)];
  }

  draft(d, get) {
    const {model} = this;
    const [p, q] = [get('p'), get('q')];
    const piece = model.text('decisions', 'draft_text', d) ?? `[${get('draft_id')}]`;
    const ratio = p === null || q === null ? null : q > 0 ? p / q : p > 0 ? Infinity : 0;
    return section('Draft token', facts([
      ['token x', make('span', {}, pieceOf(piece), ` id ${get('draft_id')}, ` +
          `${kDraftKinds[get('draft_kind') ?? 0]}`)],
      ['place', get('place'), kMeanings.place],
      ['p(x)', exact(p, 'panel_p'), kMeanings.p],
      ['q(x)', exact(q, 'panel_q'), kMeanings.q],
      ['p / q', ratio === null ? null : ratio === Infinity ? '\u221e'
          : make('span', {title: ratio, id: 'panel_ratio'}, ratio.toPrecision(4)), kMeanings.ratio],
      ['P before', exact(get('prefix')), kMeanings.prefix],
      ['h after', exact(get('bound')), kMeanings.h],
      ['verdict', kVerdicts[get('verdict')] ?? null],
    ]));
  }

  acceptance(get) {
    const coin = get('accept_coin');
    const [p, q, bound] = [get('p'), get('q'), get('bound')];
    if (coin === null) return null;
    const ratio = p === null || q === null ? null : q > 0 ? Math.min(1, p / q) : p > 0 ? 1 : 0;
    // With P of `block` u is compared with h, which a record may lack.
    const threshold = bound ?? (get('prefix') === null ? ratio : null);
    const name = bound === null ? 'min(1, p / q)' : 'h';
    return this.coin(coin, threshold, name);
  }

  coin(coin, threshold, name) {
    return section('Accept coin', coinLine({coin, low: threshold === null ? null : 0, high: threshold, kind: 'accept'}),
        make('p', {class: 'panel_line'}, make('span', {class: 'hint', title: kMeanings.u}, 'u'), ' = ', exact(coin, 'panel_coin'),
             threshold === null ? '' : ` ${coin < threshold ? '<' : '\u2265'} ${name} = `,
             threshold === null ? '' : exact(threshold, 'panel_threshold')));
  }

  draw(d, get) {
    const coin = get('draw_coin');
    if (coin === null) return null;
    const {model} = this;
    const [low, high, mass] = [get('draw_low'), get('draw_high'), get('residual_mass')];
    const piece = model.text('decisions', 'token_text', d) ?? `[${get('token') ?? '?'}]`;
    const source = mass === null ? 'p' : mass === 0 ? 'p, because the residual was empty'
        : 'the residual';
    return section('Draw', coinLine({coin, low, high, kind: 'draw'}), facts([
      ['coin', make('span', {}, exact(coin, 'panel_draw_coin'),
                    ` ${kPurposes[get('draw_purpose')] ?? ''}`), kMeanings.coin],
      ['interval', low === null ? null
          : make('span', {id: 'panel_interval', title: `[${low}, ${high})`},
                 `[${probability(low)}, ${probability(high)})`)],
      ['drawn', make('span', {}, pieceOf(piece), ` id ${get('token') ?? '\u2013'}`)],
      ['from', source],
      ['residual mass', exact(mass), kMeanings.residual],
      ['p of it', exact(get('token_p'))],
    ]));
  }

  candidates(d, get) {
    const {model} = this;
    const [first, end] = [model.candidateStart[d], model.candidateStart[d + 1]];
    if (first === end) return null;
    const value = (name, row) => model.get('candidates', name, row);
    let largest = 1e-12;
    let hasDraft = false;
    for (let row = first; row < end; ++row) {
      largest = Math.max(largest, value('p', row) ?? 0, value('q', row) ?? 0);
      hasDraft ||= value('q', row) !== null;
    }
    const body = make('tbody');
    for (let row = first; row < end; ++row) {
      const id = value('id', row);
      const roles = [id === get('draft_id') ? 'x' : '', id === get('token') ? 'y' : ''].join('');
      const piece = model.text('candidates', 'text', row) ?? `[${id}]`;
      const forbidden = value('forbidden', row) === 1;
      const free = value('free_p', row);
      const hint = free === null ? null : `p without the mask: ${probability(free)}`;
      body.append(make('tr', {class: forbidden ? 'forbidden' : null, 'data-id': id},
          make('td', {class: 'role'}, roles),
          make('td', {class: 'word', title: `id ${id}`}, pieceOf(piece)),
          make('td', {class: 'bars'}, bar(value('p', row), largest, 'target'),
               hasDraft ? bar(value('q', row), largest, 'proposed') : null),
          make('td', {class: 'number', title: hint}, forbidden ? 'forbidden' : probability(value('p', row)),
               hasDraft ? make('br') : null,
               hasDraft ? make('span', {class: 'muted'}, probability(value('q', row))) : null)));
    }
    return section('Candidates',
        make('p', {class: 'legend'}, make('i', {class: 'swatch target'}),
             make('span', {class: 'hint', title: kMeanings.p}, 'target p'), ' ',
             hasDraft ? make('i', {class: 'swatch proposed'}) : null, hasDraft ? make('span', {class: 'hint', title: kMeanings.q}, 'draft q') : null, ' ',
             make('span', {class: 'muted'}, 'x: draft token, y: emitted')),
        make('table', {class: 'candidates'}, body));
  }

  grammar(d) {
    const {model} = this;
    const row = model.grammarStart[d];
    if (row === model.grammarStart[d + 1]) return null;
    const state = model.get('grammar', 'state', row);
    const allowed = model.get('grammar', 'allowed', row);
    return section('Grammar', facts([
      ['state', state === null ? 'mask of the engine' : literal(state, {class: 'code'})],
      ['mask', literal(model.get('grammar', 'mask', row) ?? '\u2013', {class: 'code'})],
      ['allowed ids', allowed === null ? null
          : `${count(allowed)} of ${count(model.trace.vocab_size ?? null)}`],
    ]));
  }

  stepFacts(step) {
    const {model} = this;
    const get = (name) => model.get('steps', name, step);
    return section('Round', facts([
      ['round', `${count(get('round'))} at ${milliseconds(get('time_ms'))}`],
      ['method', model.text('steps', 'method', step)],
      ['round base', count(get('base'))],
      ['tokens', `${get('drafted')} drafted, ${get('accepted')} accepted, ${get('kept')} kept`],
      ['verify', microseconds(get('verify_us'))],
      ['status', model.text('steps', 'status', step)],
      ['finish', model.text('steps', 'finish', step)],
    ]));
  }
}

// ---- parts --------------------------------------------------------------------------------------

function section(title, ...children) {
  return make('section', {}, make('h3', {}, title), ...children);
}

// A list of names and values, with what the name means; absent values are left out.
function facts(pairs, attributes = {}) {
  const list = make('dl', attributes);
  for (const [name, value, meaning] of pairs) {
    if (value === null || value === undefined) continue;
    list.append(make('dt', {title: meaning, class: meaning && 'hint'}, name),
                make('dd', {}, value));
  }
  return list;
}

// A number with all its digits as the title.
function exact(value, id = null) {
  return value === null ? null : make('span', {id, title: value}, probability(value));
}

function bar(value, largest, kind) {
  const line = makeSvg('svg', {class: 'meter', viewBox: '0 0 100 6', preserveAspectRatio: 'none',
                               'aria-hidden': 'true'});
  const width = 100 * Math.min(1, (value ?? 0) / largest);
  line.append(makeSvg('rect', {class: kind, x: 0, y: 0, height: 6, width}));
  return line;
}

// The line of coins 0 .. 1 with the interval [low, high) and the coin.
function coinLine({coin, low, high, kind}) {
  const [width, left] = [320, 8];
  const at = (value) => left + value * (width - 2 * left);
  const line = makeSvg('svg', {class: `coin_line ${kind}`, viewBox: `0 0 ${width} 44`,
                               role: 'img'});
  const inside = low !== null && coin >= low && coin < high;
  line.setAttribute('aria-label', `coin ${probability(coin)}` + (low === null ? ''
      : `, ${inside ? 'inside' : 'outside'} ${probability(low)} to ${probability(high)}`));
  line.append(makeSvg('rect', {class: 'ground', x: at(0), y: 16, height: 10,
                               width: at(1) - at(0)}));
  if (low !== null) {
    line.append(makeSvg('rect', {class: 'inside', x: at(low), y: 16, height: 10,
                                 width: Math.max(high > low ? 1.5 : 0, at(high) - at(low))}));
    for (const end of kind === 'accept' ? [high] : [low, high]) {
      line.append(makeSvg('line', {class: 'threshold', x1: at(end), x2: at(end), y1: 12, y2: 30}));
    }
  }
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    line.append(makeSvg('text', {x: at(tick), y: 40, 'text-anchor': tick === 0 ? 'start'
        : tick === 1 ? 'end' : 'middle'}, String(tick)));
  }
  line.append(makeSvg('path', {class: 'coin', d: `M${at(coin)} 27 V9 m-5 -8 h10 l-5 8 z`}));
  return line;
}
