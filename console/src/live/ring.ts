/** The last five minutes of a few series, one value a second; NaN where nothing is known. */

export const RING_SECONDS = 300;

export class Ring {
  private readonly values = new Map<string, Float64Array>();
  /** Second (since 1970) of the newest value; 0 before the first. */
  newest_s = 0;

  /** Moves on to `second`; what lies between is unknown. */
  private advance(second: number): void {
    if (this.newest_s === 0) this.newest_s = second;
    const steps = Math.min(second - this.newest_s, RING_SECONDS);
    for (const array of this.values.values()) {
      for (let step = 0; step < steps; step += 1) array[(second - step) % RING_SECONDS] = NaN;
    }
    this.newest_s = Math.max(this.newest_s, second);
  }

  private array(name: string): Float64Array {
    let array = this.values.get(name);
    if (!array) this.values.set(name, (array = new Float64Array(RING_SECONDS).fill(NaN)));
    return array;
  }

  /** Takes the values of one second; null is unknown. Seconds older than the newest are taken if the ring still reaches them. */
  put(second: number, values: Record<string, number | null | undefined>): void {
    if (second > this.newest_s) this.advance(second);
    if (second <= this.newest_s - RING_SECONDS) return;
    for (const [name, value] of Object.entries(values)) this.array(name)[second % RING_SECONDS] = value ?? NaN;
  }

  /** Fills what is unknown so far from the past; a step of several seconds fills all of them. */
  fill(name: string, from_s: number, step_s: number, values: (number | null)[]): void {
    const array = this.array(name);
    if (this.newest_s === 0) this.newest_s = from_s + values.length * step_s - 1;
    values.forEach((value, index) => {
      for (let offset = 0; offset < step_s; offset += 1) {
        const second = from_s + index * step_s + offset;
        if (second > this.newest_s || second <= this.newest_s - RING_SECONDS) continue;
        if (Number.isNaN(array[second % RING_SECONDS]!)) array[second % RING_SECONDS] = value ?? NaN;
      }
    });
  }

  /** Oldest first, `RING_SECONDS` values. */
  series(name: string, into: Float64Array): Float64Array {
    const array = this.values.get(name);
    if (!array) return into.fill(NaN);
    for (let index = 0; index < RING_SECONDS; index += 1) into[index] = array[(this.newest_s + 1 + index) % RING_SECONDS]!;
    return into;
  }
}
