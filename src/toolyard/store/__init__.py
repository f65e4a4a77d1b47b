"""SQL: tables, one repository a file, migrations, encryption."""
