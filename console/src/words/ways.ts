/** Made by the code from its table of exports (`HEARTH_UPDATE=1 cargo test -p hearth`). `hasPlace`: a colon and a place follow the word. */

export interface Way {
  word: string;
  hasPlace: boolean;
  isDevice: boolean;
  title: string;
}

export const WAYS: readonly Way[] = [
  { word: "block", hasPlace: false, isDevice: true, title: "Block device" },
  { word: "ublk", hasPlace: false, isDevice: true, title: "Block device" },
  { word: "loop", hasPlace: false, isDevice: true, title: "Block device" },
  { word: "loop:fast", hasPlace: false, isDevice: true, title: "Block device" },
  { word: "nbd", hasPlace: false, isDevice: false, title: "NBD on a Unix socket" },
  { word: "vhost-user", hasPlace: false, isDevice: false, title: "Disk for virtual machines" },
  { word: "nbd", hasPlace: true, isDevice: false, title: "NBD on TCP" },
  { word: "nbds", hasPlace: true, isDevice: false, title: "NBD on TCP with TLS" },
];
