/** What an import of a migration is: its text. */
declare module "*.sql" {
  const text: string;
  // oxlint-disable-next-line import/no-default-export -- That is how Bun imports text.
  export default text;
}
