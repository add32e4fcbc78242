/** Where the page begins. */

import { effect } from "@preact/signals";
import { render } from "preact";
import { App } from "./app";
import { begin, gate, login } from "./live/connection";
import { follow as followRoute, loginCode, route, title } from "./route";
import { follow as followTheme } from "./theme";
import { toast } from "./ui/toast";
import { ApiError } from "./rest";
import "./styles/all.css";

followTheme();
followRoute();

effect(() => {
  document.title = `${gate.value === "login" ? "Log in" : title(route.value)} · hearth`;
});

const root = document.getElementById("app")!;
root.textContent = "";
render(<App />, root);

const code = loginCode(location.hash);
if (code) {
  // The code is good once and is nobody's business: it leaves the address bar before anything else happens.
  history.replaceState(null, "", location.pathname + location.search);
  login({ code }).catch((error: unknown) => {
    const told = error instanceof ApiError ? error : new ApiError(0, String(error), null);
    toast({ kind: "error", title: "The login address did not work", detail: told.detail, remedy: told.remedy });
    void begin();
  });
} else void begin();
