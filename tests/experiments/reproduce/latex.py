"""Tables of a LaTeX source, as far as the paper needs them: label, and rows of cells as plain text."""

import re

LAYOUT = r"\\(?:toprule|midrule|bottomrule|hline|centering|xspace)\b"
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"


def tables(source):
    """Return the rows of every tabular by the last label before it."""
    found = {}
    for match in re.finditer(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", source, re.DOTALL):
        label = re.findall(r"\\label\{(tab:[^}]*)\}", source[: match.start()])[-1]
        assert label not in found
        found[label] = [row for row in map(cells, rows(match[1])) if any(row)]
    return found


def without_tables(source):
    """Return the text alone."""
    return re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", source, flags=re.DOTALL)


def rows(body):
    return re.split(r"\\\\(?:\s*\[[^\]]*\])?", re.sub(LAYOUT, "", body))


def cells(row):
    return [plain(cell) for cell in re.split(r"(?<!\\)&", row)]


def plain(cell):
    """Return a cell without its dress: fonts, citations, footnote marks and dollar signs."""
    cell = re.sub(r"\\multicolumn\{[^}]*\}\{[^}]*\}\{([^}]*)\}", r"\1", cell)
    cell = re.sub(r"\\citep?\{[^}]*\}", "", cell)
    cell = re.sub(r"\$?\^\{?(?:\\ddagger|\*)\}?\$?|\$\\dagger\$", "", cell)
    cell = re.sub(r"\\ours(?:bold)?\b", "UCB", cell)
    for font in ("textbf", "mathbf", "mathrm"):
        cell = re.sub(rf"\\{font}\s*\{{([^{{}}]*)\}}", r"\1", cell)
    for word, meaning in {r"\pm": "±", r"\sigma": "sigma", r"\mu": "mu", r"\rho": "rho", r"\log": "log"}.items():
        cell = cell.replace(word, meaning)
    cell = re.sub(r"\\([{}#%])", r"\1", cell).replace("$", "").replace("(Ours)", "")
    return " ".join(cell.split())


def number(cell):
    """Return a cell's value, with its spread where there is one; None if it is no number."""
    match = re.fullmatch(rf"({NUMBER})(M?)(?:±({NUMBER}))?", cell.replace(" ", ""))
    if match is None:
        return None
    value = float(match[1].replace(",", "")) * (1e6 if match[2] else 1)
    return [value, float(match[3])] if match[3] else value


def choices(cell):
    """Return the numbers of a set such as {0,1,2}, or None."""
    match = re.fullmatch(r"\{(.*)\}", cell)
    return None if match is None else {"choices": [float(each) for each in match[1].split(",")]}
