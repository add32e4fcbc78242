/** The volume with the most dirty data, for bars that compare and for who asks. */

import { computed } from "@preact/signals";
import { newest } from "./volumes";

export const dirtiest = computed(() => {
  let found: { name: string; dirty_bytes: number } | null = null;
  for (const [name, { dirty_bytes }] of Object.entries(newest.value?.volumes ?? {})) {
    if (dirty_bytes !== null && dirty_bytes > (found?.dirty_bytes ?? 0)) found = { name, dirty_bytes };
  }
  return found;
});
