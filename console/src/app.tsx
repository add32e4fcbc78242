/** The frame around all pages: navigation, banner, messages. */

import { useEffect, useRef } from "preact/hooks";
import { connection, gate, logout, returned, tryNow, attempt } from "./live/connection";
import { daemon, events, jobs, loaded, pools, session } from "./live/store";
import { newest } from "./live/volumes";
import { timeOfDay } from "./format";
import { href, route, title, type Route } from "./route";
import { choice, type Choice } from "./theme";
import { Icon } from "./ui/icon";
import { Toasts } from "./ui/toast";
import { ViewOnly } from "./ui/operate";
import { Login } from "./pages/login";
import { Overview } from "./pages/overview";
import { VolumePage } from "./pages/volume";
import { PoolPage } from "./pages/pool";
import { Pools } from "./pages/pools";
import { Access } from "./pages/access";
import { Jobs } from "./pages/jobs";
import { Events } from "./pages/events";
import { Setup } from "./pages/setup";
import { Advice } from "./pages/advice";
import { AnalysisPage } from "./pages/analysis";
import { Applications } from "./pages/apps";
import { ObjectPage } from "./pages/object";

export function App() {
  if (gate.value === "login") return <><Login /><Toasts /></>;
  if (gate.value === "asking") {
    return connection.value === "lost"
      ? <main class="boot"><Lost /></main>
      : <p class="boot">Loading the console…</p>;
  }
  return (
    <div class={connection.value === "live" ? "frame" : "frame stale"}>
      <a class="skip" href="#main" onClick={skip}>Skip to the content</a>
      <Navigation />
      <div class="column">
        <Banner />
        <main id="main" tabIndex={-1}>
          <ViewOnly />
          {loaded.value ? <Page /> : <p class="boot">Asking the daemon…</p>}
        </main>
      </div>
      <Toasts />
    </div>
  );
}

function skip(event: Event): void {
  // The hash is the route: the link moves the focus alone.
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Page() {
  const now = route.value;
  const first = useRef(true);
  const key = href(now);
  useEffect(() => {
    // A new page is announced by its heading; the first one is not taken from whoever just opened it.
    if (!first.current) document.querySelector<HTMLElement>("main h1")?.focus();
    first.current = false;
  }, [key]);
  switch (now.page) {
    case "overview":
      return <Overview />;
    case "volume":
      return <VolumePage key={now.name} name={now.name} />;
    case "pool":
      return <PoolPage key={now.name} name={now.name} />;
    case "pools":
      return <Pools />;
    case "access":
      return <Access />;
    case "jobs":
      return <Jobs />;
    case "events":
      return <Events />;
    case "setup":
      return <Setup />;
    case "advice":
      return <Advice name={now.name} />;
    case "analysis":
      return <AnalysisPage key={now.name} name={now.name} />;
    case "apps":
      return <Applications volume={now.volume} id={now.id} />;
    case "object":
      return <ObjectPage key={key} volume={now.volume} id={now.id} />;
    case "unknown":
      return <div class="empty"><h1 tabIndex={-1}>{title(now)}</h1><p>There is no such page. <a href="#/">Go to the overview.</a></p></div>;
  }
}

function Navigation() {
  const running = jobs.value.filter((job) => job.state === "running").length;
  const grave = events.value.filter((event) => event.severity === "error").length;
  const here = route.value.page;
  const item = (to: Route, icon: string, word: string, active: boolean, note?: { number: number; told: string }) => (
    <li>
      <a href={href(to)} aria-current={active ? "page" : undefined}>
        <Icon name={icon} />
        <span>{word}</span>
        {note && note.number > 0 && <span class="nav-note" title={note.told}>{note.number}<span class="hidden"> {note.told}</span></span>}
      </a>
    </li>
  );
  const only = pools.value.length === 1 ? pools.value[0] : undefined;
  return (
    <div class="side">
      <a class="brand" href="#/" aria-label="hearth: overview"><img src="icon.svg" alt="" width="26" height="26" /><span>hearth</span></a>
      <nav aria-label="Pages">
        <ul>
          {item({ page: "overview" }, "overview", "Overview", here === "overview" || here === "volume")}
          {item(only ? { page: "pool", name: only.name } : { page: "pools" }, "pool", only ? "Pool" : "Pools", here === "pool" || here === "pools")}
          {item({ page: "advice" }, "advice", "Advice", here === "advice" || here === "analysis")}
          {item({ page: "apps" }, "apps", "Apps", here === "apps" || here === "object")}
          {item({ page: "access" }, "access", "Access", here === "access")}
          {item({ page: "jobs" }, "jobs", "Jobs", here === "jobs", { number: running, told: "running" })}
          {item({ page: "events" }, "events", "Events", here === "events", { number: grave, told: grave === 1 ? "error" : "errors" })}
          {item({ page: "setup" }, "setup", "Set up", here === "setup")}
        </ul>
      </nav>
      <div class="side-foot">
        <Themes />
        <p class="who">
          {session.value && <span class="who-name">{session.value.name || session.value.by} <span class="chip">{session.value.role}</span></span>}
          {session.value?.by === "session" && (
            <button type="button" class="icon-button" aria-label="Log out" title="Log out" onClick={() => void attempt("Logging out", logout)}><Icon name="leave" /></button>
          )}
        </p>
        <p class="who muted">{daemon.value && `hearth ${daemon.value.version}`}</p>
      </div>
    </div>
  );
}

const THEMES: [Choice, string, string][] = [["light", "sun", "Light"], ["dark", "moon", "Dark"], ["auto", "auto", "As the system has it"]];

function Themes() {
  return (
    <div class="themes" role="group" aria-label="Colours">
      {THEMES.map(([name, icon, word]) => (
        <button key={name} type="button" aria-pressed={choice.value === name} aria-label={word} title={word} onClick={() => (choice.value = name)}>
          <Icon name={icon} />
        </button>
      ))}
    </div>
  );
}

function Banner() {
  const back = returned.value;
  return (
    <div class="banners" role="status" aria-live="polite">
      {connection.value === "lost" && <Lost />}
      {connection.value === "live" && back && <div class="banner back"><Icon name="check" /> {back}</div>}
    </div>
  );
}

function Lost() {
  const sample = newest.value;
  return (
    <div class="banner lost">
      <Icon name="alert" />
      <span>
        <strong>Connection to the daemon lost — trying again.</strong>{" "}
        {sample && <>What you see is from {timeOfDay(sample.unix_ms / 1000)}.</>}
      </span>
      <button type="button" class="button small" onClick={tryNow}>Try now</button>
    </div>
  );
}
