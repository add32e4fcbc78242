/** What each way to offer a volume is called, by the word of the command line. */

/** Whether it is a block device: `block`, `ublk`, `loop`, `loop:fast`. */
export function isDevice(word: string): boolean {
  return word === "block" || word === "ublk" || word.startsWith("loop");
}

/** Its name for people. */
export function exportName(word: string): string {
  if (isDevice(word)) return "Block device";
  if (word.startsWith("vhost-user")) return "Disk for virtual machines";
  if (word.startsWith("nbds:")) return "NBD on TCP with TLS";
  return word === "nbd" ? "NBD on a Unix socket" : "NBD on TCP";
}

/** What offering something so does, as a sentence. */
export function exportSentence(word: string, name: string): string {
  if (isDevice(word)) return `A block device appears (/dev/ublkbN where the kernel has ublk, otherwise /dev/loopN), and /dev/hearth/${name} if possible.`;
  if (word.startsWith("vhost-user")) return "It is offered to virtual machines of this host by vhost-user, on a socket.";
  if (word === "nbd") return "It is offered over NBD on the daemon's Unix socket.";
  if (word.startsWith("nbds:")) return `It is offered over NBD with TLS at ${word.slice(5)}, to clients with a certificate (hearth pki issue).`;
  return `It is offered over NBD at ${word.slice(4)}, without encryption, to this machine only.`;
}
