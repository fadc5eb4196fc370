"""Commands of users: logging in and out, and the stored users and roles."""
