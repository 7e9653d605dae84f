// Helpers of every view: elements, text that is shown literally, numbers.

const byId = (id) => document.getElementById(id);

// make('td', {class: 'number', title: 'x'}, child, ...): children are nodes or strings.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Characters that hide or reorder others, control characters, and lone surrogates, which stand for
// bytes (DATA.md, rule 5).
const kSpecial =
    /[\p{Cc}\p{Cs}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;
const kSpecialOnce = new RegExp(kSpecial.source, 'u');

const hex = (value, digits) => value.toString(16).toUpperCase().padStart(digits, '0');

function markOf(character) {
  const code = character.codePointAt(0);
  if (code === 10) return '\u21b5';
  if (code === 9) return '\u21e5';
  if (code < 32) return String.fromCharCode(0x2400 + code);
  if (code === 127) return '\u2421';
  if (code >= 0xdc80 && code <= 0xdcff) return hex(code - 0xdc00, 2);
  return `U+${hex(code, 4)}`;
}

// Appends text so that every character of it can be seen. With `lines` a newline breaks the line.
function appendVisible(parent, text, lines = false) {
  if (!kSpecialOnce.test(text)) {
    parent.append(text);
    return parent;
  }
  let end = 0;
  for (const match of text.matchAll(kSpecial)) {
    if (match.index > end) parent.append(text.slice(end, match.index));
    end = match.index + match[0].length;
    const code = match[0].codePointAt(0);
    const boxed = code > 127;
    parent.append(make('span', {class: boxed ? 'mark boxed' : 'mark'}, markOf(match[0])));
    if (lines && (code === 10 || code === 9)) parent.append(match[0]);
  }
  if (end < text.length) parent.append(text.slice(end));
  return parent;
}

// A piece of outside text inside our own.
const literal = (text, attributes = {}) => appendVisible(make('bdi', attributes), String(text));

// The piece of a token alone: spaces at its ends are shown.
function pieceOf(text, attributes = {}) {
  const [, before, middle, after] = /^( *)(.*?)( *)$/s.exec(text);
  const box = make('bdi', {...attributes, class: `piece ${attributes.class ?? ''}`});
  const spaces = (length) => length === 0 ? null
      : make('span', {class: 'mark'}, '\u00b7'.repeat(length));
  box.append(spaces(before.length) ?? '');
  appendVisible(box, middle);
  box.append(spaces(after.length) ?? '');
  return box;
}

const count = (value) => value === null ? '\u2013' : value.toLocaleString('en-US');

function probability(value) {
  if (value === null) return '\u2013';
  if (value === 0 || value === 1) return String(value);
  if (value >= 0.9995 && value < 1) return value.toFixed(7).replace(/0+$/, '');
  return value >= 0.001 ? value.toFixed(4) : value.toExponential(2);
}

const percent = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : '\u2013';

function milliseconds(value) {
  if (value === null) return '\u2013';
  if (value < 1000) return `${value.toFixed(value < 10 ? 2 : 1)} ms`;
  return value < 120000 ? `${(value / 1000).toFixed(2)} s` : `${(value / 60000).toFixed(1)} min`;
}

const microseconds = (value) => value === null ? '\u2013' :
    value < 1000 ? `${value.toFixed(1)} \u00b5s` : `${(value / 1000).toFixed(2)} ms`;

// The colour of a CSS variable as rgb(), for canvases. forgetColours() before each drawing, because
// the theme may have changed.
const colours = new Map();
function cssColour(name) {
  if (!colours.has(name)) {
    const probe = byId('colour_probe');
    probe.style.color = `var(--${name})`;
    colours.set(name, getComputedStyle(probe).color);
  }
  return colours.get(name);
}
const forgetColours = () => colours.clear();

// Radio buttons that look like one control. `choices` is a list of [value, label].
function makeChoice(box, name, choices, onChange) {
  for (const [value, label] of choices) {
    const input = make('input', {type: 'radio', name, value, id: `${name}_${value}`});
    input.checked = value === choices[0][0];
    input.addEventListener('change', () => onChange(value));
    box.append(input, make('label', {for: input.id}, label));
  }
}

// The options of this page that outlive it. A browser may forbid storage to files.
function remember(name, value) {
  try {
    localStorage.setItem(`specd.${name}`, value);
  } catch {
    // The option holds for this view only.
  }
}
function remembered(name) {
  try {
    return localStorage.getItem(`specd.${name}`);
  } catch {
    return null;
  }
}
