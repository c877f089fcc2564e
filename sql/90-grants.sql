-- The net below the grants that stand beside each function and view: whatever was forgotten there is closed here.
-- Taking from PUBLIC leaves what was granted to a role.
REVOKE ALL ON ALL TABLES IN SCHEMA queen FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA queen FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queen FROM PUBLIC;
