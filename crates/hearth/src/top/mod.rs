//! `hearth top`: a full screen that moves with the daemon's samples.
//!
//! One thread listens to the daemon and connects again when it goes away, one reads the keyboard, one waits for signals; what they have to say
//! comes together here, is put into the [`model`], and drawn. The terminal is put back however this ends: by a key, a signal, an error or a panic.

mod detail;
mod draw;
mod figures;
mod help;
mod model;
#[cfg(test)]
mod tests;

use crate::commands::Session;
use crate::failure::Failure;
use api::client::{Client, ClientError, ServerEvent};
use api::{DaemonView, EventView, Sample};
use draw::Looks;
use model::Model;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Between two tries to reach a daemon that went away.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the screen stands at most: it counts how long the daemon is gone.
const REDRAW: Duration = Duration::from_secs(1);

/// What comes from outside.
enum Input {
    Connected,
    Sample(Sample),
    Event(EventView),
    Lost,
    Key(KeyEvent),
    Resized,
    Signal(i32),
    KeyboardGone(String),
}

/// Shows everything until `q`, Ctrl-C or a signal.
///
/// # Errors
/// Without a terminal or a daemon.
pub fn top(session: &Session) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("it needs a terminal", "use `hearth stats --watch` for pipes and files"));
    }
    let daemon: DaemonView = session.client.get("/daemon")?;
    session.interrupt.watch();
    let (tell, inputs) = channel();
    signals(tell.clone())?;
    listen(session.client.clone(), tell.clone())?;
    let looks = Looks { colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    // Also makes a panic put the terminal back before it is told.
    let terminal = ratatui::try_init().map_err(|e| screen_failed(&e))?;
    let ended = keyboard(tell).and_then(|()| show(terminal, &inputs, Model::new(&daemon.version), looks));
    ratatui::restore();
    match ended? {
        None | Some(SIGINT) => Ok(()),
        Some(signal) => Err(Failure { message: "ended by a signal".into(), status: 128 + signal as u8 }),
    }
}

fn screen_failed(error: &std::io::Error) -> Failure {
    Failure::failed(format!("the terminal cannot be used ({error})"), "use `hearth stats --watch`")
}

/// Draws whenever something came; gives the signal that ended it, if one did.
fn show(mut terminal: DefaultTerminal, inputs: &Receiver<Input>, mut model: Model, looks: Looks) -> Result<Option<i32>, Failure> {
    loop {
        terminal.draw(|frame| draw::draw(frame, &model, looks, Instant::now())).map_err(|e| screen_failed(&e))?;
        let first = match inputs.recv_timeout(REDRAW) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        };
        // All that came meanwhile is one picture.
        for input in first.into_iter().chain(inputs.try_iter()) {
            match input {
                Input::Connected => model.connected(),
                Input::Sample(sample) => model.take_sample(sample),
                Input::Event(event) => model.take_event(event),
                Input::Lost => model.lost(),
                Input::Key(key) => model.press(key),
                Input::Resized => {}
                Input::Signal(signal) => return Ok(Some(signal)),
                Input::KeyboardGone(problem) => {
                    return Err(Failure::failed(format!("the keyboard cannot be read ({problem})"), "see the terminal"));
                }
            }
        }
        if model.over {
            return Ok(None);
        }
    }
}

fn signals(tell: Sender<Input>) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("signals cannot be watched ({e})"), "try again");
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    crate::serve::spawn("signals", move || {
        for signal in signals.forever() {
            if tell.send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn keyboard(tell: Sender<Input>) -> Result<(), Failure> {
    crate::serve::spawn("keyboard", move || {
        loop {
            let input = match event::read() {
                Ok(Event::Key(key)) => Input::Key(key),
                Ok(Event::Resize(..)) => Input::Resized,
                Ok(_) => continue,
                Err(error) => Input::KeyboardGone(error.to_string()),
            };
            let over = matches!(input, Input::KeyboardGone(_));
            if tell.send(input).is_err() || over {
                return;
            }
        }
    })?;
    Ok(())
}

/// Listens to the daemon for ever; connects again when it goes away.
fn listen(client: Client, tell: Sender<Input>) -> Result<(), Failure> {
    crate::serve::spawn("daemon", move || {
        let mut latest = 0;
        loop {
            if follow(&client, &tell, &mut latest).is_err() || tell.send(Input::Lost).is_err() {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    })?;
    Ok(())
}

/// The screen is gone: nobody wants to hear more.
struct NobodyListens;

/// Hands on what one connection brings, until it ends. `latest` is the number of the latest event handed on.
fn follow(client: &Client, tell: &Sender<Input>, latest: &mut u64) -> Result<(), NobodyListens> {
    let say = |input| tell.send(input).map_err(|_| NobodyListens);
    let past: Result<Vec<EventView>, ClientError> = client.get("/events?after=0");
    let Ok(past) = past else { return Ok(()) };
    let newest = past.last().map_or(0, |event| event.number);
    // Numbers begin anew with each daemon.
    let seen = if newest < *latest { 0 } else { *latest };
    for event in past.into_iter().filter(|event| event.number > seen) {
        say(Input::Event(event))?;
    }
    *latest = newest;
    say(Input::Connected)?;
    for event in client.stream("/stream", Some(newest)) {
        let Ok(ServerEvent { event, data, .. }) = event else { return Ok(()) };
        match event.as_str() {
            "sample" => {
                if let Ok(sample) = serde_json::from_str(&data) {
                    say(Input::Sample(sample))?;
                }
            }
            "event" => {
                if let Ok(event) = serde_json::from_str::<EventView>(&data)
                    && event.number > *latest
                {
                    *latest = event.number;
                    say(Input::Event(event))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
