-- queen.same_person: whether two actors count as one person. Internal, granted to nobody.
--
-- A name that differs only in case, in spaces, in characters that are not seen or in how a character is encoded is the same
-- name: an authority that spells somebody in two ways does not make two people of them.
--
-- Arguments:
--   one, other  What queen.actor() said, then and now.
-- Result: Whether they are the same; NULL if one of them is.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.same_person(one text, other text)
    RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'queen_same_person';

COMMENT ON FUNCTION queen.same_person(text, text) IS
'Part of other functions: whether two actors count as one person.
Example: SELECT queen.same_person(''Ann'', '' ann'');';
REVOKE ALL ON FUNCTION queen.same_person(text, text) FROM PUBLIC;
