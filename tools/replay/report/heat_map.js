// HeatMap draws the share of the drafted tokens that were accepted, for each place (down) and time
// (across), on the axis and the window of the timeline.

class HeatMap {
  constructor(view) {
    this.view = view;
    this.canvas = byId('heat_map');
    this.tip = byId('tip');
    view.onChange(() => this.draw());
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.tip.hidden = true);
  }

  // Counts, for each place and bin, the draft tokens, those that were reached, and those accepted.
  count(numBins) {
    const {view} = this;
    const {model} = view;
    const [first, end] = view.entriesInWindow();
    const places = [];  // of each place: an array of bins for each of the three
    for (let i = first; i < end; ++i) {
      const bin = view.binOf(i, numBins);
      for (let step = view.first[i]; step < view.last[i]; ++step) {
        const start = model.placeStart[step];
        for (let row = start; row < model.placeStart[step + 1]; ++row) {
          const place = row - start;
          if (place === places.length) {
            places.push(model.places.map(() => new Float64Array(numBins)));
          }
          for (let which = 0; which < 3; ++which) {
            places[place][which][bin] += model.places[which][row];
          }
        }
      }
    }
    Object.assign(this, {numBins, places, numPlaces: places.length});
  }

  draw() {
    const room = Math.max(10, this.canvas.parentElement.clientWidth - kLeft - kRight);
    this.count(this.view.numBins(room, 8));
    this.rowHeight = Math.max(8, Math.min(18, Math.floor(300 / Math.max(1, this.numPlaces))));
    const height = Math.max(1, this.numPlaces) * this.rowHeight + 20;
    const {context, plot} = beginDrawing(this.canvas, height);
    this.plot = plot;
    const ramp = new ColourRamp();
    const width = plot / this.numBins;
    const totals = [];
    for (let place = 0; place < this.numPlaces; ++place) {
      let [drafted, accepted] = [0, 0];
      const [all, , taken] = this.places[place];
      for (let bin = 0; bin < this.numBins; ++bin) {
        if (all[bin] === 0) continue;
        drafted += all[bin];
        accepted += taken[bin];
        context.fillStyle = ramp.at(taken[bin] / all[bin]);
        context.fillRect(kLeft + bin * width, place * this.rowHeight,
                         width >= 6 ? width - 1 : Math.ceil(width), this.rowHeight - 1);
      }
      totals.push(percent(accepted, drafted));
      this.label(context, place, totals[place], plot);
    }
    if (this.numPlaces === 0) {
      context.fillStyle = cssColour('muted');
      context.textAlign = 'left';
      context.fillText('no draft tokens in these rounds', kLeft, this.rowHeight / 2);
    }
    drawHorizontalAxis(context, this.view, plot, height - 9);
    this.canvas.setAttribute('aria-label', 'Acceptance by place: ' +
        totals.map((total, place) => `place ${place} ${total}`).join(', '));
  }

  label(context, place, total, plot) {
    const every = this.rowHeight >= 12 ? 1 : 2;
    if (place % every !== 0) return;
    const y = (place + 0.5) * this.rowHeight - 0.5;
    context.fillStyle = cssColour('muted');
    context.textAlign = 'right';
    context.fillText(String(place), kLeft - 6, y);
    context.textAlign = 'left';
    context.fillText(total, kLeft + plot + 6, y);
  }

  hover(event) {
    const place = Math.floor(event.offsetY / this.rowHeight);
    const bin = Math.floor((event.offsetX - kLeft) / this.plot * this.numBins);
    const inside = place >= 0 && place < this.numPlaces && bin >= 0 && bin < this.numBins;
    const [drafted, reached, accepted] = inside ? this.places[place].map((bins) => bins[bin])
                                               : [0, 0, 0];
    if (drafted === 0) {
      this.tip.hidden = true;
      return;
    }
    this.tip.replaceChildren(
        make('div', {}, `place ${place}: ${percent(accepted, drafted)} of the drafted accepted`),
        make('div', {}, `${count(accepted)} of ${count(drafted)} drafts`),
        make('div', {}, `${percent(accepted, reached)} of the ${count(reached)} that were reached`));
    placeTip(this.tip, this.canvas, event.offsetX, event.offsetY + 14);
  }
}

// One hue, from the page's ground to full: readable without colour vision.
class ColourRamp {
  constructor() {
    this.ends = ['ramp_low', 'ramp_high'].map((name) => cssColour(name).match(/\d+/g).map(Number));
  }
  at(part) {
    const [low, high] = this.ends;
    return `rgb(${low.map((from, i) => Math.round(from + (high[i] - from) * part)).join(' ')})`;
  }
}
