// Search finds text and ids (id:1234) in the chosen sequence or in all of them.

const kHitsMax = 100000;

class Search {
  constructor(model, {onGo, onHits}) {
    this.model = model;
    this.onGo = onGo;      // called with (sequence, token)
    this.onHits = onHits;  // called when the marks of the shown sequence change
    this.sequence = 0;     // the one that is shown
    this.clear();
    const later = () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.run(), 120);
    };
    byId('query').addEventListener('input', later);
    byId('everywhere').addEventListener('change', () => this.run());
    byId('search').addEventListener('submit', (event) => {
      event.preventDefault();
      this.go(1);
    });
    byId('query').addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && event.shiftKey) {
        event.preventDefault();
        this.go(-1);
      }
      if (event.key === 'Escape') byId('query').blur();
    });
    byId('previous_hit').addEventListener('click', () => this.go(-1));
  }

  clear() {
    this.hits = [];  // {sequence, first, end}
    this.now = -1;
    this.query = '';
  }

  setSequence(sequence) {
    this.sequence = sequence;
    if (this.query !== '' && !byId('everywhere').checked) this.run();
    else this.onHits(this.marks());
  }

  run() {
    clearTimeout(this.timer);
    this.clear();
    this.query = byId('query').value;
    this.everywhere = byId('everywhere').checked;
    if (this.query !== '') {
      const sequences = this.everywhere ? Array.from({length: this.model.numSequences}, (_, s) => s)
                                        : [this.sequence];
      const id = /^\s*id:\s*(-?\d+)\s*$/.exec(this.query);
      for (const s of sequences) {
        if (id) this.findId(s, Number(id[1])); else this.findText(s);
      }
    }
    this.report();
    this.onHits(this.marks());
  }

  add(sequence, first, end) {
    if (this.hits.length < kHitsMax) this.hits.push({sequence, first, end});
  }

  findId(s, id) {
    const ids = this.model.data.tokens?.id;
    this.model.textOf(s).tokens.forEach((token, k) => {
      if (ids?.[token] === id) this.add(s, k, k + 1);
    });
  }

  // Capitals in the query make it exact.
  findText(s) {
    const lower = this.query === this.query.toLowerCase();
    const {text, starts} = this.model.textOf(s).searchText(lower);
    let token = 0;
    for (let at = text.indexOf(this.query); at >= 0 && this.hits.length < kHitsMax;
         at = text.indexOf(this.query, at + this.query.length)) {
      while (starts[token + 1] <= at) ++token;
      let end = token + 1;
      while (starts[end] < at + this.query.length) ++end;
      this.add(s, token, end);
    }
  }

  // For each token of the shown sequence: 0, 1 in a hit, 2 in the current hit. Null: no hit.
  marks() {
    const mine = this.hits.filter((hit) => hit.sequence === this.sequence);
    if (mine.length === 0) return null;
    const marks = new Uint8Array(this.model.textOf(this.sequence).tokens.length);
    for (const hit of mine) marks.fill(1, hit.first, hit.end);
    const now = this.hits[this.now];
    if (now?.sequence === this.sequence) marks.fill(2, now.first, now.end);
    return marks;
  }

  go(by) {
    if (byId('query').value !== this.query) this.run();
    if (this.hits.length === 0) return;
    const before = this.now;
    this.now = before < 0 ? this.firstFrom(by)
                          : (before + by + this.hits.length) % this.hits.length;
    const hit = this.hits[this.now];
    this.report();
    this.onGo(hit.sequence, hit.first);
    this.onHits(this.marks());
  }
  // Begins with the sequence that is shown.
  firstFrom(by) {
    const mine = this.hits.findIndex((hit) => hit.sequence >= this.sequence);
    if (by < 0) return (mine <= 0 ? this.hits.length : mine) - 1;
    return mine < 0 ? 0 : mine;
  }

  report() {
    const total = `${count(this.hits.length)}${this.hits.length === kHitsMax ? ' or more' : ''}`;
    byId('hits').textContent = this.query === '' ? '' : this.hits.length === 0 ? 'no hit'
        : this.now >= 0 ? `${count(this.now + 1)} of ${total}`
        : `${total} ${this.hits.length === 1 ? 'hit' : 'hits'}`;
  }
}
