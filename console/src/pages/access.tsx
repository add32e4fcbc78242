/** Who comes in from outside: machines that use a volume as a disk, and bearers of tokens. */

import { AllShares } from "../access/shares";
import { Tokens } from "../access/tokens";

export function Access() {
  return (
    <>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>Shares and tokens</h1>
          <p class="page-sub">Which machines can use a volume as a disk, and who may log in to the daemon from elsewhere</p>
        </div>
      </div>
      <AllShares />
      <Tokens />
    </>
  );
}
