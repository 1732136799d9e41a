"""SentencePiece BPE expressed as merges. Pure.

SentencePiece joins the adjacent pair whose union has the best score; the tokenizers library joins by
the rank of a pair in a list. Sorting every way to cut each piece in two by score gives that list.
"""

from exo.runners.gguf.vocabulary import NORMAL, USER_DEFINED, Vocabulary


def derive_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Give all (left, right) pairs of pieces whose union is a piece, best score first."""
    joinable = {NORMAL, USER_DEFINED}
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces) if vocabulary.types[number] in joinable}
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, number in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                score = -vocabulary.scores[number]
                ranked.append((score, ids[left], ids[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]
