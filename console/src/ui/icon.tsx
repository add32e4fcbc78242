/** The few pictures of the page, drawn with strokes; always beside words or a label. */

const PATHS: Record<string, string> = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  pool: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zm0 0v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  advice: "M4 4v16h16M8 16c.6-6 3.5-8.5 11-9",
  apps: "M4 5h16v14H4zM4 10h16M10 10v9",
  access: "M12 15.5a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM11 12.5 20 4M17 7l3 3M14 9.8l2 2",
  jobs: "M4 6h10M4 12h16M4 18h7M17 4v4M20 6h-3",
  events: "M6 9a6 6 0 1 1 12 0c0 6 2 7 2 7H4s2-1 2-7M10 20h4",
  setup: "M12 5v14M5 12h14",
  check: "M5 12l5 5L20 7",
  alert: "M12 8v5m0 3v.5M10.3 4 2.6 18a2 2 0 0 0 1.7 3h15.4a2 2 0 0 0 1.7-3L13.7 4a2 2 0 0 0-3.4 0z",
  info: "M12 11v6m0-10v.5M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  sun: "M12 3v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10 1.4 1.4m0-12.8L17 7M7 17l-1.4 1.4M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0z",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  leave: "M14 4H5v16h9M10 12h11m-4-4 4 4-4 4",
  disk: "M3 15l3-10h12l3 10v5H3zM3 15h18M17 17.5h.5",
  volume: "M12 3l9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}
