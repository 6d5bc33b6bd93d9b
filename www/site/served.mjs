// The page of `gradloom serve`, which is compiled into the program: one self-contained file with script and styles.
import { standalone } from "./standalone.mjs";

const BODY = `<h1 id="name">A model</h1>
<p class="lead" id="about"></p>
<section id="chat" aria-label="Chat" hidden>
<div class="talk" role="log" aria-label="The conversation" tabindex="0"><ol id="talk"></ol></div>
</section>
<p class="end" id="status" role="status">Asking what is served.</p>
<section id="speak" aria-label="What you say" hidden>
<form id="say" class="say">
<label><span class="hide">Your words</span><textarea id="words" rows="3" placeholder="Say or ask something; Shift and Enter begin a line"></textarea></label>
<div class="actions">
<button id="send" type="submit">Send</button><button class="plain" id="stop" type="button" hidden>Stop</button>
<button class="plain" id="again" type="button" disabled>Answer again</button>
<button class="plain" id="anew" type="button">Begin anew</button>
</div>
</form>
<details class="settings"><summary>Settings</summary>
<label>What the model is told before the conversation<textarea id="system" rows="2"></textarea></label>
<div class="actions">
<label>Temperature <input id="temperature" type="range" min="0" max="2" step="0.1" value="0.7"><output for="temperature" id="degrees">0.7</output></label>
<label>Tokens at most <input id="tokens" type="text" inputmode="numeric" size="6" placeholder="as many as fit"></label>
<label id="adapter" hidden>Adapter <select id="model"></select></label>
</div>
</details>
</section>
<form id="rank" aria-label="Texts by their meaning" class="say" hidden>
<label>What is looked for<input id="query" type="text" autocomplete="off" value="a sleeping cat"></label>
<label>Texts, one in a line<textarea id="texts" rows="6">the kitten naps on the couch
a loan at a bank
fishermen on the bank of a river</textarea></label>
<div class="actions"><button type="submit">Rank the texts</button></div>
<ol id="ranked" class="ranked" aria-label="The texts, most relevant first"></ol>
</form>`;

/** Builds the page from a script and styles. The server says what its model is for, in place of `SERVES`. */
export const served = (script, styles) =>
  standalone({ title: "gradloom serve", bodyAttributes: ' class="served" data-serves="SERVES"', body: BODY, script, styles });
