// Posts the token of a link to the portal: its fragment, which the browser sends nowhere and which leaves the address.
const form = document.getElementById("open");
const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname);
  form.elements.token.value = token;
  form.submit();
}
