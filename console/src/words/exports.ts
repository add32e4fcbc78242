/** What each way to offer a volume is called, by the word of the command line. */

import { WAYS, type Way } from "./ways";

/** The way of a word such as `nbd:127.0.0.1:10809`; undefined for one that a newer daemon has. */
function wayOf(word: string): Way | undefined {
  const before = word.split(":")[0] ?? word;
  return WAYS.find((way) => way.word === word && !way.hasPlace) ?? WAYS.find((way) => way.hasPlace && way.word === before) ?? WAYS.find((way) => way.word === before);
}

/** Whether it is a block device: `block`, `ublk`, `loop`, `loop:fast`. */
export function isDevice(word: string): boolean {
  return wayOf(word)?.isDevice ?? false;
}

/** Its name for people. */
export function exportName(word: string): string {
  return wayOf(word)?.title ?? word;
}

/** What offering something so does, as a sentence. */
export function exportSentence(word: string, name: string): string {
  if (isDevice(word)) return `A block device appears (/dev/ublkbN where the kernel has ublk, otherwise /dev/loopN), and /dev/hearth/${name} if possible.`;
  if (word.startsWith("vhost-user")) return "It is offered to virtual machines of this host by vhost-user, on a socket.";
  if (word === "nbd") return "It is offered over NBD on the daemon's Unix socket.";
  if (word.startsWith("nbds:")) return `It is offered over NBD with TLS at ${word.slice(5)}, to clients with a certificate (hearth pki issue).`;
  return `It is offered over NBD at ${word.slice(4)}, without encryption, to this machine only.`;
}
