// The range of time that all pictures show.
class TimeView extends EventTarget {
  constructor() {
    super();
    this.limit = 1;  // the longest makespan
    this.start = 0;
    this.end = 1;
  }

  get length() { return this.end - this.start; }
  get showsAll() { return this.start === 0 && this.end === this.limit; }

  // Keeps the range in place when the makespan changes, unless it showed everything.
  setLimit(limit) {
    const showedAll = this.showsAll;
    this.limit = Math.max(1, limit);
    if (showedAll) this.show(0, this.limit);
    else this.show(this.start, this.end);
  }

  show(start, end) {
    const shortest = Math.min(this.limit, Math.max(10, this.limit / 1e5));
    const length = Math.min(this.limit, Math.max(shortest, end - start));
    this.start = Math.min(Math.max(0, start), this.limit - length);
    this.end = this.start + length;
    this.dispatchEvent(new Event('change'));
  }

  // Shows `1 / factor` of the range, with `center` staying where it is.
  zoom(factor, center = (this.start + this.end) / 2) {
    const before = (center - this.start) / factor;
    this.show(center - before, center - before + this.length / factor);
  }

  // By a share of the range.
  pan(share) {
    const distance = this.length * share;
    this.show(this.start + distance, this.end + distance);
  }

  reset() { this.show(0, this.limit); }

  // Moves so that the given range can be seen.
  reveal(start, end) {
    if (start >= this.start && end <= this.end) return;
    const center = (start + end) / 2;
    this.show(center - this.length / 2, center + this.length / 2);
  }
}
