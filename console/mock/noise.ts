/** Randomness that depends on nothing but its arguments: the past can be asked for again and is the same. */

export function hash(text: string): number {
  let value = 2166136261;
  for (const character of text) value = Math.imul(value ^ character.charCodeAt(0), 16777619);
  return value >>> 0;
}

/** 0 to 1, by seed and index. */
export function random(seed: number, index: number): number {
  let value = (seed ^ Math.imul(index | 0, 0x9e3779b1)) >>> 0;
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return ((value ^ (value >>> 16)) >>> 0) / 2 ** 32;
}

/** 0 to 1, smooth over `period`. */
export function noise(seed: number, at: number, period: number): number {
  const position = at / period;
  const index = Math.floor(position);
  const part = position - index;
  const smooth = part * part * (3 - 2 * part);
  return random(seed, index) * (1 - smooth) + random(seed, index + 1) * smooth;
}
