/** Small choices that outlive the page. A browser that refuses to remember is no error. */

export function recall(key: string): string | null {
  try {
    return localStorage.getItem(`hearth.${key}`);
  } catch {
    return null;
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`hearth.${key}`, value);
  } catch {
    // Private windows may have no storage.
  }
}
