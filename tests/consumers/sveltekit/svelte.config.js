// A site that its own server in Node draws.
import adapter from "@sveltejs/adapter-node";

export default { kit: { adapter: adapter() } };
