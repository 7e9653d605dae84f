// CauseFilter chooses the causes whose draft tokens the text shows, with a button for each cause.

class CauseFilter {
  constructor(model, onChange) {
    this.model = model;
    this.onChange = onChange;  // called with the keys of the hidden causes
    this.hidden = new Set();
  }

  // The causes of a sequence, each a button.
  show(sequence) {
    const {model} = this;
    const ranges = [...model.stepsOf(sequence)].map((step) =>
        [model.rejectedStart[step], model.rejectedStart[step + 1]]);
    this.causes = model.causesIn(ranges);
    this.buttons = this.causes.map((cause) => {
      const button = make('button', {type: 'button', class: 'cause'},
                          make('i', {class: `dot ${cause.look}`}), literal(cause.words),
                          ` ${count(cause.count)}`);
      button.addEventListener('click', () => this.press(cause.key));
      return button;
    });
    byId('causes').replaceChildren(...this.buttons);
    this.mark();
  }

  // While no draft tokens are shown, a button shows those of its cause alone.
  press(key) {
    const box = byId('show_rejected');
    if (!box.checked) {
      box.checked = true;
      this.hidden = new Set(this.causes.map((cause) => cause.key));
      this.hidden.delete(key);
    } else if (!this.hidden.delete(key)) {
      this.hidden.add(key);
    }
    this.mark();
    this.onChange(this.hidden);
  }

  // Shows every cause.
  clear() {
    this.hidden.clear();
    this.mark();
  }

  mark() {
    const isShown = byId('show_rejected').checked;
    this.causes?.forEach((cause, i) =>
        this.buttons[i].setAttribute('aria-pressed', String(isShown && !this.hidden.has(cause.key))));
  }
}
