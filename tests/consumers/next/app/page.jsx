// A page that is drawn on the server and runs a model in the browser.
import Speech from "./speech.jsx";

export default function Page() {
  return <Speech />;
}
