-- The runner itself: a fresh database has the extension, errors stand below their statements.
SELECT extname, extversion, nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
WHERE extname = 'queen';
SELECT 1/0;
SELECT gen_random_uuid() AS masked, '00000000-0000-0000-0000-000000000001'::uuid AS constant;
