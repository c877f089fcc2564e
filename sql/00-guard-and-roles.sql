-- What must be true before anything is created, and who there is.

-- CREATE EXTENSION uses the schema queen if it is already there. Whoever owns it could have put operators or types into
-- it that this script, and later every view, would pick up: so it has to be a superuser's, closed to others, and empty.
DO $guard$
DECLARE
    owner  text;
    holder boolean;
    other  text;
BEGIN
    SELECT r.rolname, r.rolsuper INTO STRICT owner, holder
      FROM pg_catalog.pg_namespace n
      JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
     WHERE n.nspname OPERATOR(pg_catalog.=) 'queen';
    IF NOT holder THEN
        RAISE EXCEPTION 'schema "queen" belongs to "%", who is not a superuser', owner
              USING ERRCODE = 'insufficient_privilege',
                    DETAIL = 'The extension trusts whatever its schema holds.',
                    HINT = 'Drop the schema, or give it away: ALTER SCHEMA queen OWNER TO CURRENT_USER.';
    END IF;

    SELECT coalesce(r.rolname, 'PUBLIC') INTO other
      FROM pg_catalog.pg_namespace n
     CROSS JOIN pg_catalog.aclexplode(n.nspacl) a
      LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.grantee
     WHERE n.nspname OPERATOR(pg_catalog.=) 'queen'
       AND a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
       AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner
     LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '"%" may create objects in schema "queen"', other
              USING ERRCODE = 'insufficient_privilege',
                    DETAIL = 'The extension trusts whatever its schema holds.',
                    HINT = pg_catalog.format('REVOKE CREATE ON SCHEMA queen FROM %s;', other);
    END IF;

    SELECT x.what INTO other
      FROM (SELECT pg_catalog.format('relation %s', c.relname) AS what FROM pg_catalog.pg_class c
             WHERE c.relnamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace
            UNION ALL
            SELECT pg_catalog.format('function %s', p.proname) FROM pg_catalog.pg_proc p
             WHERE p.pronamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace
            UNION ALL
            SELECT pg_catalog.format('type %s', t.typname) FROM pg_catalog.pg_type t
             WHERE t.typnamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace
            UNION ALL
            SELECT pg_catalog.format('operator %s', o.oprname) FROM pg_catalog.pg_operator o
             WHERE o.oprnamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace) x
     LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'schema "queen" is not empty: it holds the %', other
              USING ERRCODE = 'duplicate_object',
                    HINT = 'The extension wants its schema to itself. Move or drop what is there, then try again.';
    END IF;
END
$guard$;

-- Roles belong to the cluster: another database may have made them already, perhaps at this moment, and they stay
-- after DROP EXTENSION. None of them can log in; they are granted to the logins that need them.
--
--   queen_producer    push
--   queen_consumer    pop, wait, settle
--   queen_viewer      look: views, messages, dead letters
--   queen_operator    viewer, and move or delete single dead letters
--   queen_admin       all of these, and queues, groups, purges, maintenance
--   queen_sidecar     the functions that answer JSON text and those that its other routes call, for the HTTP server's login
DO $roles$
DECLARE
    role_name text;
    link      text[];
BEGIN
    FOREACH role_name IN ARRAY ARRAY['queen_producer', 'queen_consumer', 'queen_viewer', 'queen_operator', 'queen_admin',
                                     'queen_sidecar']
    LOOP
        IF pg_catalog.to_regrole(role_name) IS NULL THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', role_name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;   -- somebody else was faster
            END;
        END IF;
    END LOOP;

    FOREACH link SLICE 1 IN ARRAY ARRAY[['queen_viewer', 'queen_operator'], ['queen_operator', 'queen_admin'],
                                        ['queen_producer', 'queen_admin'], ['queen_consumer', 'queen_admin']]
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m
                        WHERE m.roleid OPERATOR(pg_catalog.=) pg_catalog.to_regrole(link[1])
                          AND m.member OPERATOR(pg_catalog.=) pg_catalog.to_regrole(link[2])) THEN
            BEGIN
                EXECUTE pg_catalog.format('GRANT %I TO %I', link[1], link[2]);
            EXCEPTION WHEN unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$roles$;

COMMENT ON SCHEMA queen IS
'queen, a message broker: queues with ordered partitions, consumer groups, leases, dead letters. \df+ queen.* tells what each function does.';
REVOKE ALL ON SCHEMA queen FROM PUBLIC;
GRANT USAGE ON SCHEMA queen
   TO queen_producer, queen_consumer, queen_viewer, queen_operator, queen_admin, queen_sidecar;
