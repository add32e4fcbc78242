/** What an object brings, over SSD bytes: a few dozen pixels beside its name, or more on its page. */

import type { ObjectPoint } from "../api-objects";
import { bytes } from "../format";
import { brings } from "../words/objects";
import { between, placeOf, tried } from "./curve";

const WIDE = 100;
const HIGH = 24;

/** Of at least one point. `top`: what the whole height stands for, in percent. `now`: the SSD that there is. */
export function SmallCurve({ curve, top, now }: { curve: ObjectPoint[]; top: number; now: number | null }) {
  const ends = tried(curve);
  const x = (ssd_bytes: number): number => placeOf(ssd_bytes, ends) * WIDE;
  const y = (percent: number): number => HIGH - (percent / top) * (HIGH - 2);
  const line = curve
    .map((point) => `${x(point.ssd_bytes).toFixed(1)} ${y(point.hits_percent).toFixed(1)}`)
    .join("L");
  const inside = now !== null && now > ends.low && now < ends.high;
  return (
    <svg class="small-curve" viewBox={`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label={told(curve)}>
      <path class="curve-band" d={`M0 ${HIGH}L${line}L${WIDE} ${HIGH}Z`} />
      <path class="curve-line" d={`M${line}`} />
      {inside && <line x1={x(now)} x2={x(now)} y1="0" y2={HIGH} />}
    </svg>
  );
}

/** What it brings with the SSD that there is; without one, with the largest that is told. */
export const bringsNow = (curve: ObjectPoint[], now: number | null): number =>
  curve.length === 0 ? 0 : between(curve, now ?? Infinity, (point) => point.hits_percent);

/** "0.3 % with 256 MiB, 21 % with 8 GiB, 31 % with 512 GiB" */
const told = (curve: ObjectPoint[]): string =>
  [0, curve.length >> 1, curve.length - 1]
    .map((at) => `${brings(curve[at]!.hits_percent)} with ${bytes(curve[at]!.ssd_bytes)}`)
    .join(", ");
