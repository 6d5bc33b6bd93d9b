// The site's location relative to a demo's page.

/** The site's root: pages of demos lie two folders below it. */
export const site = new URL("../../", location.href);
