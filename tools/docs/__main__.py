"""Put what was measured into the documents, in the repository's root: ``python -m tools.docs``."""

from tools.docs.documents import DOCUMENTS, rewrite
from tools.docs.reproduction_page import PAGE, page

for document in DOCUMENTS:
    document.write_text(rewrite(document.read_text()))
PAGE.write_text(page())
