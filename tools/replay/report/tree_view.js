// TreeView draws the tree of a step: a line for each node below its parent, and children in the order
// in which they are judged. The walk is the accepted path and the final token.

const kTreeRow = 24;  // pixels, as in report.css
const kTreeLeft = 9;  // of the root's dot
const kTreeWord = 168;  // where the longest word ends

// What the coin of a node is compared with.
const kShares = {
  tree: ['t / d', 'what the siblings before left of p, over the proposal'],
  traversal: ['P', 'the probability with which the path is accepted once all below the node is rejected'],
  target_only: ['\u03a3 p', 'p of the children up to this one'],
};

class TreeView {
  constructor(model, onChoose) {
    this.model = model;
    this.onChoose = onChoose;  // called with 'tokens' or 'rejected' and a row of it
  }

  // The lines of a step's tree, from the root on; empty: the draft was a chain. `table` and `row`
  // are what the line is elsewhere on the page: a kept token, or a draft token that was not kept.
  linesOf(step) {
    const {model} = this;
    const [first, end] = [model.nodeStart[step], model.nodeStart[step + 1]];
    if (first === end) return [];
    const lines = [{depth: 0, parent: -1, walked: true, kind: 'root'}];
    const lineOf = new Map();
    let last = 0;  // the line that the walk has come to
    for (let node = first; node < end; ++node) {
      const get = (name) => model.get('nodes', name, node);
      const parent = lineOf.get(get('parent')) ?? 0;
      const depth = lines[parent].depth + 1;
      const fate = get('fate') ?? 2;
      const walked = fate === 0;
      const rejected = get('rejected');
      const table = rejected !== null ? 'rejected' : walked ? 'tokens' : null;
      lineOf.set(get('node'), lines.length);
      if (walked) last = lines.length;
      lines.push({node, parent, depth, walked, kind: `node${fate}`, word: kNodeFates[fate], table,
                  row: rejected ?? model.tokenStart[step] + depth - 1});
    }
    this.addFinal(lines, last, step);
    return lines;
  }

  // The token that ended the walk is the last child of its place. The finish rules may have dropped
  // it.
  addFinal(lines, last, step) {
    const {model} = this;
    const row = model.tokenStart[step] + (model.get('steps', 'accepted', step) ?? 0);
    if (row >= model.tokenStart[step + 1]) return;
    const {depth} = lines[last];
    let at = last + 1;
    while (at < lines.length && lines[at].depth > depth) ++at;
    for (const line of lines) if (line.parent >= at) ++line.parent;
    const kind = kKinds[model.get('tokens', 'kind', row) ?? 3];
    lines.splice(at, 0, {parent: last, depth: depth + 1, walked: true, kind, word: kind,
                         table: 'tokens', row});
  }

  // The node that a row of `tokens` or `rejected` is; null: none.
  nodeOf(step, table, row) {
    const line = this.linesOf(step).find((line) => line.table === table && line.row === row);
    return line?.node ?? null;
  }

  // `table` and `row`: the token that the panel is about. null: the draft was a chain.
  draw(step, table, row) {
    const lines = this.linesOf(step);
    if (lines.length === 0) return null;
    const share = kShares[this.model.text('steps', 'method', step)] ?? null;
    const indent = Math.max(5, Math.min(16, 100 / Math.max(...lines.map((line) => line.depth))));
    const left = (line) => kTreeLeft + indent * line.depth;
    const columns = [['token'], ['p', kMeanings.p],
                     ['q', kMeanings.q]];
    if (share !== null) columns.push(share, ['u', kMeanings.u]);
    const head = columns.map(([name, title], i) =>
        make('th', {title, class: i > 0 ? 'number' : null}, name));
    const body = lines.map((line) => {
      const mine = line.table === table && line.row === row;
      return make('tr', {class: line.walked ? 'walked' : null}, this.label(line, mine, left(line)),
                  ...this.numbers(line, share !== null),
                  make('td', {class: `verdict ${line.kind}`}, line.word ?? ''));
    });
    return section('Tree', make('div', {class: 'tree_box', tabindex: 0, role: 'region',
                                        'aria-label': 'The tree of this round'},
        branches(lines, left),
        make('table', {class: 'tree'}, make('thead', {}, make('tr', {}, ...head, make('th'))),
             make('tbody', {}, ...body))));
  }

  label(line, mine, left) {
    const {model} = this;
    const cell = make('td');
    cell.style.paddingLeft = `${left + 9}px`;
    if (line.kind === 'root') {
      cell.append(make('span', {class: 'muted'}, 'the text before'));
      return cell;
    }
    const [table, row] = line.node === undefined ? ['tokens', line.row] : ['nodes', line.node];
    const id = model.get(table, 'id', row) ?? '?';
    const button = make('button', {type: 'button', class: `t ${line.kind}`, title: `id ${id}`,
                                   'aria-current': mine ? 'true' : null,
                                   disabled: line.table === null},
                        pieceOf(model.text(table, 'text', row) ?? `[${id}]`));
    button.addEventListener('click', () => this.onChoose(line.table, line.row));
    button.style.maxWidth = `${kTreeWord - left}px`;
    cell.append(button);
    return cell;
  }

  numbers(line, hasShare) {
    const {model} = this;
    const names = hasShare ? ['p', 'q', 'bound', 'coin'] : ['p', 'q'];
    let values = names.map((name) => model.get('nodes', name, line.node));
    if (line.table === 'tokens' && line.node === undefined) {
      values = names.map(() => null);
      values[0] = model.get('decisions', 'token_p', model.get('tokens', 'decision', line.row));
    }
    return values.map((value) =>
      make('td', {class: 'number', title: value}, value === null ? '' : probability(value)));
  }
}

// The lines between the dots, and the dots. The walk lies over the other branches.
function branches(lines, left) {
  const middle = (i) => kTreeRow * (i + 1.5);
  const box = makeSvg('svg', {class: 'branches', width: Math.max(...lines.map(left)) + 6,
                              height: kTreeRow * (lines.length + 1), 'aria-hidden': 'true'});
  const edge = (line, i) => makeSvg('path', {
    class: line.walked ? 'edge walk' : 'edge',
    d: `M${left(lines[line.parent])} ${middle(line.parent)} V${middle(i) - 5} q0 5 5 5 ` +
        `H${left(line)}`,
  });
  for (const walked of [false, true]) {
    lines.forEach((line, i) => {
      if (i > 0 && line.walked === walked) box.append(edge(line, i));
    });
  }
  lines.forEach((line, i) => box.append(makeSvg('circle', {
    class: `dot ${line.kind}`, cx: left(line), cy: middle(i), r: i === 0 ? 3 : 4})));
  return box;
}
