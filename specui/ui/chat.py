"""The Chat tab: conversation left; the switch, figures and settings right.

The conversation itself lives in the browser (`page.js` keeps it); a hidden component carries it to the server and back.
The running answer stays on the server, in the page's session, so that the switch and stop reach it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from specui.config import SpeculationMode
from specui.engine.stats import Stats
from specui.errors import BlankPromptError, SpecUIError
from specui.ui import figures, thread
from specui.ui.answering import Frame, answer, notice
from specui.ui.conversation import Conversation
from specui.ui.form import ChatSettings, Form
from specui.ui.loader import PairLoader
from specui.ui.references import ReferenceBox
from specui.ui.sessions import Session, Sessions
from specui.ui.shared import DIRECT, QUIET, ModelRuntime
from specui.ui.starters import STARTERS

Updates = dict[Any, Any]

BAR = (
    '<div class="sp-bar-row"><details class="sp-chats"><summary><span>Chats</span></summary><ul></ul></details>'
    '<button type="button" class="sp-quiet" data-act="new">New chat</button>'
    '<button type="button" class="sp-quiet" data-act="clear">Clear</button></div>'
)

MORE = '<button type="button" class="sp-quiet" aria-expanded="false">Chart and settings</button>'


def _keeper(name: str) -> gr.HTML:
    """Return a hidden value that page.js keeps in the browser whenever the server sets it."""
    script = f"watch('value', () => window.specui.{name}(props.value))"
    return gr.HTML("", html_template="", js_on_load=script, visible="hidden", apply_default_css=False)


class ChatTab:
    """Layout and events of the tab; `build` is called inside the tab."""

    def __init__(
        self, runtime: ModelRuntime, sessions: Sessions, loader: PairLoader, speculation: SpeculationMode
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._loader = loader
        self._speculation = speculation
        self._form = Form(speculation)
        self._references = ReferenceBox(sessions)

    def build(self, page: gr.Blocks, build_above: Callable[[], None]) -> None:
        """Make the tab; `build_above` makes what stands above the conversation."""
        self._conversation = _keeper("keep")
        self._partial = _keeper("keepPartial")
        self._prefs = _keeper("keepPrefs")
        with gr.Row(elem_id="sp-chat", equal_height=False):
            with gr.Column(elem_id="sp-main", scale=3):
                self._build_conversation(build_above)
            with gr.Column(elem_id="sp-side", scale=1, min_width=280):
                self._build_side()
        self._wire(page)

    def _build_conversation(self, build_above: Callable[[], None]) -> None:
        self._bar = gr.HTML(
            html_template=BAR,
            js_on_load="window.specui.bindBar(element, () => trigger('open'), () => trigger('clear'))",
            elem_id="sp-bar",
            apply_default_css=False,
        )
        act = "window.specui.bindThread(element, (data) => trigger('act', data))"
        with gr.Column(elem_id="sp-scroll"):
            build_above()
            self._thread = gr.HTML(
                thread.render(Conversation()), js_on_load=act, elem_id="sp-thread", apply_default_css=False
            )
            self._live = gr.HTML("", js_on_load=act, elem_id="sp-live", apply_default_css=False)
        self._notice = gr.HTML("", elem_id="sp-notice", apply_default_css=False)
        with gr.Row(elem_id="sp-composer"):
            self._box = gr.Textbox(
                show_label=False,
                label="Message",
                placeholder="Message the model…",
                lines=1,
                max_lines=8,
                container=False,
                elem_id="sp-box",
                scale=1,
            )
            self._send = gr.Button("Send", variant="primary", elem_id="sp-send", min_width=72, scale=0)
            self._stop = gr.Button("Stop", variant="stop", elem_id="sp-stop", min_width=72, scale=0)

    def _build_side(self) -> None:
        self._form.build_switch()
        self._figures = gr.HTML(figures.render(Stats(), ()), elem_id="sp-panel", apply_default_css=False)
        unfold = "element.firstElementChild.addEventListener('click', (event) => window.specui.unfold(event.target))"
        gr.HTML(MORE, js_on_load=unfold, elem_id="sp-more", apply_default_css=False)
        with gr.Accordion("System prompt", open=False, elem_classes="sp-fold"):
            self._form.build_system()
        with gr.Accordion("Sampling and limits", open=False, elem_classes="sp-fold"):
            self._form.build_sampling()
        with gr.Accordion("Drafting", open=False, elem_classes="sp-fold"):
            self._form.build_drafting()
            self._references.build()

    def _wire(self, page: gr.Blocks) -> None:
        kept = [self._conversation, *self._form.components]
        writes = [self._thread, self._live, self._figures, self._conversation, self._partial, self._notice, self._box]
        gr.on([self._box.submit, self._send.click], self._on_send, [self._box, *kept], writes, **QUIET)
        for part in (self._thread, self._live):
            part.act(self._on_act, [self._box, *kept], writes, **QUIET)
        self._stop.click(self._on_stop, None, None, **DIRECT)
        opened = [self._conversation, self._partial, self._thread, self._live, self._figures, self._notice]
        restore = [self._conversation, self._partial, self._prefs]
        read = "() => window.specui.restore()"
        self._bar.open(self._on_open, restore, opened, js=read, **DIRECT)
        self._bar.clear(self._on_clear, self._conversation, opened, **DIRECT)
        page.load(self._on_load, restore, [*opened, *self._form.components], js=read, **DIRECT)
        page.unload(self._on_unload)
        for widget in self._form.components:
            widget.input(self._on_settings, self._form.components, [self._prefs, self._notice], **DIRECT)

    def _session(self, request: gr.Request) -> Session:
        return self._sessions.get(request.session_hash)

    def _updates(self, frame: Frame) -> Updates:
        parts = {
            self._thread: frame.thread,
            self._live: frame.live,
            self._figures: frame.figures,
            self._conversation: frame.conversation,
            self._partial: frame.partial,
            self._notice: frame.notice,
            self._box: frame.box,
        }
        return {part: gr.skip() if value is None else value for part, value in parts.items()}

    def _on_send(self, request: gr.Request, text: str, kept: str, *values: Any) -> Iterator[Updates]:
        if not text.strip():
            yield self._updates(notice(str(BlankPromptError())))
            return
        yield from self._answer(Conversation.from_json(kept).ask(text), values, request, clear_box=True)

    def _answer(
        self, asked: Conversation, values: tuple[Any, ...], request: gr.Request, clear_box: bool = False
    ) -> Iterator[Updates]:
        if self._runtime.loaded is None and (reason := self._why_not()):
            yield self._updates(notice(reason))
            return
        try:
            settings = self._form.read(values)
        except SpecUIError as error:
            yield self._updates(notice(str(error)))
            return
        session = self._session(request)
        for frame in answer(self._runtime, session, asked, settings, clear_box):
            yield self._updates(frame)
        if session.generation is not None and session.generation.progress.finish_reason in ("stop", "length"):
            self._loader.dismiss()

    def _why_not(self) -> str:
        """Say why there is no model yet; empty where none was asked for."""
        state = self._loader.state
        if state.busy:
            return f"One moment: {state.line} Your text is kept."
        return f"No model is loaded. {state.title}: {state.failure}" if state.failure else ""

    def _on_act(self, request: gr.Request, event: gr.EventData, box: str, kept: str, *values: Any) -> Iterator[Updates]:
        """A button in the conversation was pressed; `event` says which, and of which turn."""
        conversation = Conversation.from_json(kept)
        act, index, text = str(event.act), int(event.index), str(event.text)
        if act == "example":
            yield from self._answer(conversation.ask(STARTERS[index].prompt), values, request)
        elif act == "edit" and not text.strip():
            yield self._updates(notice(str(BlankPromptError())))
        elif act == "edit":
            yield from self._answer(conversation.ask(text, at=index), values, request)
        elif act == "retry" and index < len(conversation.turns):
            yield from self._answer(conversation.ask(conversation.turns[index].question, at=index), values, request)
        elif act == "undo" and conversation.turns:
            yield self._undo(conversation, box)
        elif act == "tokens-live":
            session = self._session(request)
            session.show_tokens = not session.show_tokens
            yield self._updates(Frame())
        else:
            yield self._look(act, conversation, index, request)

    def _undo(self, conversation: Conversation, box: str) -> Updates:
        """Take the last turn back; its question returns to the box, in front of what stands there."""
        question = conversation.turns[-1].question
        shorter = conversation.undo()
        text = f"{question}\n\n{box}" if box.strip() else question
        return self._updates(Frame(thread=thread.render(shorter), conversation=shorter.to_json(), notice="", box=text))

    def _look(self, act: str, conversation: Conversation, index: int, request: gr.Request) -> Updates:
        """Show an answer's figures in the panel, and with `tokens` its tokens in place of its text, or back."""
        if not 0 <= index < len(conversation.turns):
            return self._updates(Frame())
        if act == "tokens":
            conversation = conversation.flip_tokens(index)
        shown = conversation.turns[index].answer
        if shown is None:
            return self._updates(Frame())
        if index == len(conversation.turns) - 1:
            self._session(request).show_tokens = shown.show_tokens
        running = self._session(request).running
        upto = len(conversation.turns) - 1 if running else None
        panel = None if running else figures.render(shown.stats, shown.rates)
        if act == "figures":
            return self._updates(Frame(figures=panel))
        return self._updates(
            Frame(figures=panel, thread=thread.render(conversation, upto), conversation=conversation.to_json())
        )

    def _on_stop(self, request: gr.Request) -> None:
        self._session(request).stop()

    def _on_settings(self, request: gr.Request, *values: Any) -> Updates:
        """A setting was changed: the running answer goes on under it, and the browser keeps it."""
        try:
            settings = self._form.read(values)
        except SpecUIError as error:
            return {self._prefs: gr.skip(), self._notice: thread.error(str(error))}
        self._session(request).update(settings.step)
        return {self._prefs: self._form.to_json(values), self._notice: ""}

    def _on_open(self, request: gr.Request, kept: str, partial: str, prefs: str) -> Updates:
        self._session(request).leave()
        return self._opened(Conversation.from_json(kept, partial))

    def _opened(self, conversation: Conversation) -> Updates:
        answers = [turn.answer for turn in conversation.turns if turn.answer is not None]
        last = answers[-1] if answers else None
        return {
            self._conversation: conversation.to_json(),
            self._partial: "",
            self._thread: thread.render(conversation),
            self._live: "",
            self._figures: figures.render(last.stats, last.rates) if last else figures.render(Stats(), ()),
            self._notice: "",
        }

    def _on_clear(self, request: gr.Request, kept: str) -> Updates:
        """Empty the conversation; under its old id, so that the browser forgets it."""
        self._session(request).leave()
        return self._opened(Conversation(Conversation.from_json(kept).id))

    def _on_load(self, request: gr.Request, kept: str, partial: str, prefs: str) -> Updates:
        start = ChatSettings.of_pair(self._runtime.files, self._speculation)
        settings = ChatSettings.from_json(prefs, start)
        values = dict(zip(self._form.components, self._form.fill(settings), strict=True))
        return {**self._opened(Conversation.from_json(kept, partial)), **values}

    def _on_unload(self, request: gr.Request) -> None:
        self._sessions.drop(request.session_hash)
