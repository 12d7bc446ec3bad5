// The sliders: four costs, shared by all schedules. Moving one simulates again.
const COST_FIELDS = [
  { key: 'forward', label: 'F', meaning: 'forward' },
  { key: 'input', label: 'I', meaning: 'input gradient' },
  { key: 'weight', label: 'W', meaning: 'weight gradient' },
  { key: 'hop', label: 'hop', meaning: 'a value from rank to rank' },
];

class CostControls {
  // Calls `onChange` with the values in nanoseconds, a moment after the last change.
  constructor(given, onChange) {
    this.given = given;
    this.values = { ...given };
    this.onChange = onChange;
    this.timer = 0;
    this.lastDuration = 0;
    this.inputs = new Map();
    const largest = Math.max(1, given.forward, given.input, given.weight);
    const rows = COST_FIELDS.map((field) => this.makeRow(field, largest));
    this.ratio = make('output', { className: 'muted', id: 'cost-ratio' });
    this.reset = make('button', { type: 'button', id: 'cost-reset', disabled: true }, 'As given');
    this.reset.addEventListener('click', () => this.setAll(this.given));
    byId('cost-controls').append(...rows, this.ratio, this.reset);
    this.update();
  }

  makeRow({ key, label, meaning }, largest) {
    const most = key === 'hop' ? Math.max(largest, 2 * this.given.hop) : Math.max(3 * largest, 1);
    const step = niceStep(most / 300) / NANOSECONDS_PER_MS;
    const slider = make('input', { type: 'range', min: 0, max: most / NANOSECONDS_PER_MS, step, id: `cost-${key}-slider` });
    const number = make('input', { type: 'number', min: 0, max: 1e9, step: 'any', id: `cost-${key}` });
    slider.setAttribute('aria-label', `${meaning} (${label}), in milliseconds`);
    number.setAttribute('aria-label', `${meaning} (${label}), in milliseconds, exactly`);
    slider.addEventListener('input', () => this.change(key, slider.valueAsNumber));
    number.addEventListener('input', () => { if (number.value !== '' && number.validity.valid) this.change(key, number.valueAsNumber); });
    number.addEventListener('change', () => this.update());
    this.inputs.set(key, { slider, number });
    return make('label', { className: 'cost', title: meaning }, label, slider, number);
  }

  change(key, milliseconds) {
    this.values[key] = Math.round(milliseconds * NANOSECONDS_PER_MS);
    this.update();
    this.schedule();
  }

  setAll(values) {
    this.values = { ...values };
    this.update();
    this.schedule();
  }

  // Large schedules take a while: wait for about as long as the last simulation took.
  schedule() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const begin = performance.now();
      this.onChange({ ...this.values });
      this.lastDuration = performance.now() - begin;
    }, Math.min(400, 20 + this.lastDuration));
  }

  update() {
    for (const [key, { slider, number }] of this.inputs) {
      const milliseconds = this.values[key] / NANOSECONDS_PER_MS;
      if (document.activeElement !== slider) slider.value = milliseconds;
      if (document.activeElement !== number) number.value = milliseconds;
    }
    const { forward, input, weight } = this.values;
    const unit = Math.min(...[forward, input, weight].filter((time) => time > 0));
    const share = (time) => formatCount(Number.isFinite(unit) ? time / unit : 0);
    this.ratio.textContent = `F : I : W = ${share(forward)} : ${share(input)} : ${share(weight)}`;
    this.reset.disabled = COST_FIELDS.every(({ key }) => this.values[key] === this.given[key]);
  }
}
