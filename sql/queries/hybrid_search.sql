-- A predicate and a vector search: the nearest rows among those that pass the predicate.
SELECT image, id, _distance FROM vector_search(points, emb, [1, 1], k => 5) WHERE kind = 'odd'
