// The head of the page: how many draft tokens were accepted beside what p and q expect, the rate at
// each place, and why the others were rejected. Below: the key of p, q and u.

// What the numbers of a place are, for the key and for tooltips.
const kMeanings = {
  x: 'the draft token of the place',
  place: 'the index in the draft, from 0; in a tree the depth',
  p: 'the target\u2019s probability of x at this place, after temperature, penalties, masks and filters',
  q: 'the drafter\u2019s probability of x as the engine declared it; 1 for a token that was chosen ' +
      'without chance (one_hot)',
  u: 'the accept coin: uniform in [0, 1), computed from the seed and the position',
  ratio: 'the method token accepts x if u is below p / q, so always if p is q or more',
  h: 'the method block accepts the draft up to x if u is below h, which depends on all tokens up to x',
  prefix: 'of the method block: the product of p / q of the tokens before x, cut at 1 after each',
  residual: '(p \u2212 q) where it is above 0: the token after a rejection is drawn from it',
  coin: 'the draw\u2019s coin: uniform in [0, 1); the token whose interval has it is drawn',
  reached: 'every draft token before it was accepted',
  expected: 'the mean of the acceptance probabilities that p, q and the method give',
};

const kKey = [
  ['x', 'x'], ['p', 'p'], ['q', 'q'], ['u', 'u'], ['p / q', 'ratio'], ['h', 'h'],
  ['residual', 'residual'], ['place', 'place'], ['reached', 'reached'], ['expected', 'expected'],
];

const kPlacesMax = 24;
const kCausesMax = 6;

// What a list leaves out.
function others(number, what) {
  return number > 0 ? [make('p', {class: 'muted others'}, `and ${count(number)} other ${what}`)] : [];
}

function showKey() {
  byId('key').append(
      make('summary', {}, 'What p, q and u are'),
      make('dl', {}, ...kKey.flatMap(([name, meaning]) =>
          [make('dt', {}, name), make('dd', {}, kMeanings[meaning])])),
      make('p', {class: 'muted'}, 'greedy accepts x if it is the argmax, exact_match if the coin ' +
          'of the place draws x from p. docs/CONTRACT.md, section 5, has every method.'));
}

function showAcceptance(model) {
  const {trace} = model;
  const places = trace.places ?? [];
  const [rounds, accepted, drafted] = draftsOf(model);
  if (rounds === 0) return;
  const parts = [acceptedPerRound(rounds, accepted, drafted)];
  if (trace.acceptance?.reached > 0) parts.push(rateOf(trace.acceptance));
  if (places.length > 0) parts.push(rateByPlace(places));
  const causes = model.causesIn([[0, model.numRejected]]).filter(({key}) => key.startsWith('cause'));
  if (causes.length > 0) parts.push(causesOf(causes));
  byId('acceptance').append(...parts);
}

// Sequences' parts of rounds with a draft, and their accepted and drafted tokens.
function draftsOf(model) {
  let [rounds, accepted, drafted] = [0, 0, 0];
  for (let step = 0; step < model.numSteps; ++step) {
    const size = model.get('steps', 'drafted', step) ?? 0;
    if (size === 0) continue;
    ++rounds;
    drafted += size;
    accepted += model.accepted(step);
  }
  return [rounds, accepted, drafted];
}

function block(title, hint, ...children) {
  return make('div', {class: 'block'}, make('h3', {title: hint, class: 'hint'}, title), ...children);
}

function acceptedPerRound(rounds, accepted, drafted) {
  return block('Accepted per round', 'draft tokens that the method accepted, for each sequence and ' +
      'round with a draft',
      make('p', {class: 'figure', id: 'per_round'}, (accepted / rounds).toFixed(2)),
      make('p', {class: 'muted'}, `of ${(drafted / rounds).toFixed(2)} drafted`));
}

const rate = (part) => `${(100 * part).toFixed(1)} %`;

// An expectation of a part of the draft tokens is none of all.
const isWhole = ({reached, known, expected}) => expected !== null && (known ?? reached) === reached;

function expectation(sum) {
  const {known, expected, error} = sum;
  if (expected === null || expected === undefined) return 'no expectation';
  const mean = `${rate(expected)} \u00b1 ${rate(error ?? 0)} expected`;
  if (isWhole(sum)) return mean;
  return `of the ${count(known)} whose probability is known ` +
      `${rate(sum.accepted_of_known / known)} were accepted, ${mean}`;
}

function rateOf(acceptance) {
  return block('Accepted if reached', kMeanings.reached,
      make('p', {class: 'figure', id: 'rate'}, rate(acceptance.accepted / acceptance.reached)),
      make('p', {class: 'muted', id: 'expected', title: kMeanings.expected}, expectation(acceptance)));
}

// A bar for each place; the tick is the expectation.
function rateByPlace(places) {
  const bars = places.slice(0, kPlacesMax).map((place) => {
    const part = place.accepted / place.reached;
    const bar = make('span', {class: 'column'});
    const fill = make('i', {class: 'fill'});
    fill.style.height = `${100 * part}%`;
    bar.append(fill);
    if (isWhole(place) && place.expected !== undefined) {
      const tick = make('i', {class: 'tick'});
      tick.style.bottom = `${100 * place.expected}%`;
      bar.append(tick);
    }
    return make('li', {title: `place ${place.place}: ${count(place.accepted)} of ` +
        `${count(place.reached)} reached were accepted, ${expectation(place)}`},
        make('span', {class: 'share'}, (100 * part).toFixed(0)), bar,
        make('span', {class: 'muted'}, String(place.place)));
  });
  return block('If reached, by place, %', 'the tick is the expectation',
               make('ol', {class: 'columns', id: 'rates'}, ...bars),
               ...others(places.length - kPlacesMax, 'places'));
}

function causesOf(causes) {
  return block('Rejected because', 'the judged draft tokens that were rejected, by cause',
      make('ul', {class: 'reasons', id: 'reasons'}, ...causes.slice(0, kCausesMax).map(({words, look, count: n}) =>
          make('li', {}, make('i', {class: `dot ${look}`}), literal(words.replace(/^rejected: /, '')),
               make('span', {class: 'muted'}, ` ${count(n)}`)))),
      ...others(causes.length - kCausesMax, 'causes'));
}
