// SequenceTable is the picker: a table of the sequences that can be sorted and filtered.

const kRowsAtOnce = 500;

class SequenceTable {
  constructor(model, onChoose) {
    this.model = model;
    this.onChoose = onChoose;
    this.chosen = -1;
    this.sorting = {column: null, descending: false};
    this.limit = kRowsAtOnce;
    this.rows = new Map();
    this.columns = this.makeColumns();
    this.order = Array.from({length: model.numSequences}, (_, s) => s);
    this.body = make('tbody');
    this.makeHead();
    byId('sequence_filter').addEventListener('input', () => {
      this.limit = kRowsAtOnce;
      this.draw();
    });
    this.body.addEventListener('click', (event) => {
      const row = event.target.closest('tr');
      if (row?.dataset.sequence) this.onChoose(Number(row.dataset.sequence));
      if (event.target.closest('#more_sequences')) {
        this.limit = Infinity;
        this.draw();
      }
    });
    this.draw();
  }

  makeColumns() {
    const {model} = this;
    const text = (name) => (s) => model.text('sequences', name, s);
    const number = (name) => (s) => model.get('sequences', name, s);
    const rate = (s) => {
      const drafted = model.get('sequences', 'drafted', s) ?? 0;
      return drafted > 0 ? model.get('sequences', 'accepted', s) / drafted : null;
    };
    return [
      {label: 'request id', value: text('request_id')},
      {label: 'method', value: text('method')},
      {label: 'grammar', value: text('grammar'), optional: true},
      {label: 'finish', value: text('finish')},
      {label: 'rounds', value: number('rounds'), number: true},
      {label: 'tokens', value: number('tokens'), number: true},
      {label: 'drafted', value: number('drafted'), number: true},
      {label: 'accepted', value: number('accepted'), number: true, hint: 'as the method judged'},
      {label: 'rate', value: rate, number: true, hint: 'accepted of the drafted',
       show: (part) => percent(part, 1)},
    ].filter((column) => !column.optional ||
        model.data.sequences?.grammar?.some((grammar) => grammar !== null));
  }

  makeHead() {
    const head = make('tr');
    this.columns.forEach((column, c) => {
      const button = make('button', {type: 'button'}, column.label);
      button.addEventListener('click', () => this.sortBy(c));
      column.head = make('th', {scope: 'col', class: column.number ? 'number' : null,
                                title: column.hint}, button);
      head.append(column.head);
    });
    byId('sequence_table').append(make('thead', {}, head), this.body);
  }

  sortBy(c) {
    const descending = this.sorting.column === c ? !this.sorting.descending
                                                 : this.columns[c].number === true;
    this.sorting = {column: c, descending};
    const {value} = this.columns[c];
    const keys = Array.from({length: this.model.numSequences}, (_, s) => value(s));
    const compare = (a, b) => typeof a === 'string' ? a.localeCompare(b, 'en', {numeric: true})
                                                     : a - b;
    this.order.sort((a, b) => {
      if (keys[a] === null || keys[b] === null) return (keys[a] === null) - (keys[b] === null);
      return (descending ? -1 : 1) * compare(keys[a], keys[b]) || a - b;
    });
    this.columns.forEach((column, i) => {
      if (i === c) column.head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else column.head.removeAttribute('aria-sort');
    });
    this.draw();
  }

  passing() {
    const words = byId('sequence_filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return this.order;
    return this.order.filter((s) => {
      const about = ['request_id', 'method', 'finish', 'grammar', 'handle']
          .map((name) => this.model.text('sequences', name, s) ?? '').join(' ').toLowerCase();
      return words.every((word) => about.includes(word));
    });
  }

  draw() {
    const passing = this.passing();
    const rows = passing.slice(0, this.limit).map((s) => this.rows.get(s) ?? this.makeRow(s));
    if (passing.length > rows.length) {
      const more = make('button', {type: 'button', id: 'more_sequences', class: 'quiet'},
                        `Show all ${count(passing.length)}`);
      rows.push(make('tr', {}, make('td', {colspan: this.columns.length}, more)));
    }
    if (passing.length === 0) {
      rows.push(make('tr', {}, make('td', {colspan: this.columns.length, class: 'muted'},
                                    'No sequence passes the filter.')));
    }
    this.body.replaceChildren(...rows);
    const all = this.model.numSequences;
    byId('sequence_count').textContent = passing.length === all
        ? `${count(all)} ${all === 1 ? 'sequence' : 'sequences'}`
        : `${count(passing.length)} of ${count(all)} sequences`;
  }

  makeRow(s) {
    const row = make('tr', {'data-sequence': s});
    this.columns.forEach((column, c) => {
      const value = column.value(s);
      const shown = value === null ? '\u2013' : column.show ? column.show(value)
          : column.number ? count(value) : literal(value);
      row.append(make('td', {class: column.number ? 'number' : null},
                      c === 0 ? make('button', {type: 'button'}, shown) : shown));
    });
    this.rows.set(s, row);
    if (s === this.chosen) this.mark(row);
    return row;
  }

  mark(row) {
    row.classList.add('chosen');
    row.setAttribute('aria-current', 'true');
  }

  choose(s, scroll) {
    const before = this.rows.get(this.chosen);
    before?.classList.remove('chosen');
    before?.removeAttribute('aria-current');
    this.chosen = s;
    const row = this.rows.get(s);
    if (!row) return;
    this.mark(row);
    if (!scroll) return;
    const box = row.closest('.table_box');
    const top = row.offsetTop - box.querySelector('thead').offsetHeight;
    const bottom = row.offsetTop + row.offsetHeight;
    if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) {
      box.scrollTop = Math.max(0, top - box.clientHeight / 3);
    }
  }
}
