/** How something is to be offered, as a form has it; and the words of the command line for it (`--export`). */

export interface Offer {
  block: boolean;
  vhostUser: boolean;
  nbd: boolean;
  nbdPort: string;
  /** IP:PORT of an export with TLS; empty for none. */
  tlsAddress: string;
}

export const BLOCK_ONLY: Offer = { block: true, vhostUser: false, nbd: false, nbdPort: "", tlsAddress: "" };

/** What is wrong, by field. */
export function offerProblems(offer: Offer): Record<string, string> {
  const found: Record<string, string> = {};
  const [port, tls] = [offer.nbdPort.trim(), offer.tlsAddress.trim()];
  if (port !== "" && !(/^\d+$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535)) found["nbdPort"] = "a port is a number from 1 to 65535";
  if (tls !== "" && !/^(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+\]):\d+$/.test(tls)) found["tlsAddress"] = "write IP:PORT, for instance 0.0.0.0:10809";
  return found;
}

export function exportsOf(offer: Offer): string[] {
  const [port, tls] = [offer.nbdPort.trim(), offer.tlsAddress.trim()];
  return [...(offer.block ? ["block"] : []), ...(offer.vhostUser ? ["vhost-user"] : []), ...(offer.nbd ? ["nbd"] : []), ...(port === "" ? [] : [`nbd:127.0.0.1:${port}`]), ...(tls === "" ? [] : [`nbds:${tls}`])];
}
