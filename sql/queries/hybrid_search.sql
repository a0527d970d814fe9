-- A vector search with a predicate: it returns the nearest rows among those that satisfy the predicate.
SELECT image, id, _distance FROM vector_search(points, emb, [1, 1], k => 5) WHERE kind = 'odd'
